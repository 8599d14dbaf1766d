# frozen_string_literal: true

require 'json'

# The nodes that a query finds, by name and in their order, for example to fill
# the `hosts` of a trigger.
Puppet::Functions.create_function(:'bunraku::query_nodes') do
  # @param query A query of nodes, in Bunraku's language.
  # @return The names in their certificates.
  # @example Every load balancer
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
    # A query of something else would quietly name nobody.
    raise Puppet::Error, "`#{query}` finds no nodes' names: ask for `nodes[certname] { … }`" if names.any?(&:nil?)

    names.uniq.sort
  end
end
