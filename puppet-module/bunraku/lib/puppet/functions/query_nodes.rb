# frozen_string_literal: true

require 'json'
require 'strscan'

# The nodes that a query in the language of the module `puppetdbquery` finds, for code that fills the
# `hosts` of triggers with it. In new code, use `bunraku::query_nodes`.
Puppet::Functions.create_function(:query_nodes) do
  # @param query Resources and facts, joined by `and`, `or`, `not` and parentheses.
  # @param fact Return this fact of each node instead of its certificate name.
  # @return The names or facts, sorted.
  # @example Every load balancer
  #   trigger { 'refresh load balancers':
  #     hosts => query_nodes('Class[Profile::Loadbalancer] and osfamily=Debian', fqdn),
  #   }
  dispatch :nodes do
    param 'String', :query
    optional_param 'String[1]', :fact
    return_type 'Array'
  end

  def nodes(query, fact = nil)
    column = fact ? path(fact) : 'certname'
    condition = query.strip.empty? ? '' : " { #{translate(query)} }"
    words = ['bunraku', 'query', '--json', "nodes[#{column}]#{condition}"]
    output = Puppet::Util::Execution.execute(words, failonfail: true, combine: false)
    JSON.parse(output).map { |row| row.values.first }.compact.uniq.sort_by(&:to_s)
  end

  # The same query in Bunraku's language.
  def translate(query)
    @scanner = StringScanner.new(query)
    translated = alternatives
    refuse unless @scanner.eos?
    translated
  end

  private

  def alternatives
    parts = [conjunction]
    parts << conjunction while word('or')
    parts.join(' or ')
  end

  def conjunction
    parts = [term]
    parts << term while word('and')
    parts.join(' and ')
  end

  def term
    space
    return "not (#{term})" if word('not') || @scanner.skip(/!/)
    return resource if @scanner.check(/[A-Z]\w*(::[A-Z]\w*)*\[/)
    return comparison unless @scanner.skip(/\(/)

    inner = alternatives
    space
    refuse unless @scanner.skip(/\)/)
    "(#{inner})"
  end

  # `Class[Profile::Loadbalancer]`, `Package["nginx"]`
  def resource
    type = @scanner.scan(/[\w:]+/)
    @scanner.skip(/\[/)
    operator = @scanner.skip(/~/) ? '~' : '='
    title = value
    refuse unless @scanner.skip(/\]/)
    title = title.split('::').map(&:capitalize).join('::') if type == 'Class' && operator == '='
    "resources { type = #{type.to_json} and title #{operator} #{title.to_json} }"
  end

  # `osfamily=Debian`, or the name of a node alone.
  def comparison
    name = value
    space
    operator = @scanner.scan(/!=|!~|<=|>=|=|~|<|>/)
    return "certname = #{name.to_json}" unless operator

    space
    compared = literal
    return "not (#{path(name)} ~ #{compared})" if operator == '!~'

    "#{path(name)} #{operator} #{compared}"
  end

  def literal
    return @scanner.scan(/-?\d+(\.\d+)?|true|false/) if @scanner.check(/(-?\d+(\.\d+)?|true|false)(?=[\s)]|\z)/)

    value.to_json
  end

  def value
    space
    quoted = @scanner.scan(/"[^"]*"|'[^']*'/)
    return quoted[1..-2] if quoted

    @scanner.scan(/[\w.:*-]+/) || refuse
  end

  def path(fact)
    ['facts', *fact.split('.')].join('.')
  end

  def word(expected)
    space
    @scanner.skip(/#{expected}(?=[\s(])/)
  end

  def space
    @scanner.skip(/\s+/)
  end

  def refuse
    raise Puppet::Error, "query_nodes does not understand `#{@scanner.string}` from `#{@scanner.rest}` on"
  end
end
