# frozen_string_literal: true

# What code may know of other nodes: exported resources and queries.
#
# The answers come from the server, in lines between a request and its answer.
# Whoever loads this sets `source`, which asks.
module OtherNodes
  # Asks the server. One question is one line, and so is its answer.
  class Server
    def initialize(input, output)
      @input = input
      @output = output
    end

    def ask(question)
      @output.write(JSON.generate({ 'ask' => question }, max_nesting: false), "\n")
      @output.flush
      line = @input.gets or raise 'the server ended the compile'
      reply = JSON.parse(line, max_nesting: false)
      raise Puppet::Error, reply['error'] if reply['error']

      reply['answer']
    end
  end

  class << self
    attr_accessor :source

    def query(query)
      source.ask('query' => query)
    end

    def collect(type, filter)
      question = { 'type' => type.to_s }
      question['filter'] = plain(filter) if filter
      source.ask('collect' => question)
    end

    # Builds resources as PuppetDB's terminus does. The id lets Puppet recognise
    # a resource that two collectors find.
    def resources(found, scope)
      found.map do |one|
        parameters = (one['parameters'] || {}).map do |name, value|
          Puppet::Parser::Resource::Param.new(name: name, value: rich(value))
        end
        type = Puppet::Pops::Evaluator::Runtime3ResourceSupport.find_resource_type(scope, one['type'])
        resource = Puppet::Parser::Resource.new(type, one['title'], parameters: parameters, scope: scope)
        resource.collector_id = "#{one['certname']}|#{one['type']}|#{one['title']}"
        resource
      end
    end

    # The resources of a compiled catalog that other nodes may collect.
    def exports(catalog)
      exported = catalog.resources.select(&:exported?)
      Puppet.override(rich_data: Puppet[:rich_data]) { exported.map(&:to_data_hash) }
    end

    # Values that are more than data, such as `Deferred`, are objects again.
    def rich(value)
      return value unless rich?(value)

      Puppet::Pops::Serialization::FromDataConverter.convert(value)
    end

    # Defines the function of PuppetDB's terminus, before any code is loaded.
    def define_query_function
      require 'puppet/functions'
      require 'puppet/pops'
      Puppet::Pops::Loaders.prepend(Module.new do
        def create_puppet_system_loader
          loader = super
          function = Puppet::Functions.create_loaded_function(:puppetdb_query, loader) do
            dispatch :puppetdb_query do
              required_param 'Variant[String[1], Array[Data, 1]]', :query
            end

            def puppetdb_query(query)
              OtherNodes.query(query)
            end
          end
          loader.add_entry(:function, 'puppetdb_query', function.new({}, loader), nil)
          loader
        end
      end)
    end

    private

    def plain(value)
      case value
      when Array then value.map { |one| plain(one) }
      when String, Numeric, true, false, nil then value
      else value.to_s
      end
    end

    def rich?(value)
      case value
      when Hash then value.key?('__ptype') || value.each_value.any? { |one| rich?(one) }
      when Array then value.any? { |one| rich?(one) }
      else false
      end
    end
  end
end
