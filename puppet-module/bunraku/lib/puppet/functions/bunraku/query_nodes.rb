# frozen_string_literal: true

require 'json'

# Returns the sorted names of the nodes that a query finds, for example for the
# `hosts` of a trigger.
Puppet::Functions.create_function(:'bunraku::query_nodes') do
  # @param query A query for nodes, in Bunraku's query language.
  # @return The certificate names of the nodes.
  # @example All load balancers
  #   trigger { 'refresh load balancers':
  #     hosts => bunraku::query_nodes('nodes { facts.role = "loadbalancer" }'),
  #   }
  dispatch :nodes do
    param 'String[1]', :query
    return_type 'Array[String[1]]'
  end

  def nodes(query)
    words = ['bunraku', 'query', '--json', query]
    output = Puppet::Util::Execution.execute(words, failonfail: true, combine: false)
    names = JSON.parse(output).map { |row| row['certname'] }
    # A query for another entity would silently return no node.
    raise Puppet::Error, "`#{query}` finds no nodes' names: ask for `nodes[certname] { … }`" if names.any?(&:nil?)

    names.uniq.sort
  end
end
