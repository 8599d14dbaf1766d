# frozen_string_literal: true

# Calls functions that are written in Ruby, for plans.
#
# Values keep their kind on the way: everything that is not data is an object with
# `__ptype`.
module FunctionCalls
  class << self
    # The result as JSON: an object without a value if there is no such function.
    def call(request, environment)
      given = request.fetch('node')
      facts = Puppet::Node::Facts.new('plan', given['facts'] || {})
      node = Puppet::Node.new('plan', environment: environment, facts: facts, parameters: given['facts'] || {})
      node.trusted_data = given['trusted'] || {}
      compiler = Puppet::Parser::Compiler.new(node)
      Puppet.override(compiler.context_overrides, 'Bunraku calls a function') do
        scope = compiler.topscope
        compiler.send(:set_node_parameters)
        return '{}' unless known?(request.fetch('call'), compiler)

        arguments = request.fetch('arguments').map { |one| value(one) }
        result = scope.call_function(request.fetch('call'), arguments)
        JSON.generate({ 'value' => rich(result) }, max_nesting: false)
      end
    end

    private

    def known?(name, compiler)
      return true if compiler.loaders.private_environment_loader.load(:function, name)

      Puppet::Parser::Functions.function(name.to_sym, compiler.environment)
    end

    def value(given)
      case given
      when Array then given.map { |one| value(one) }
      when Hash then given.key?('__ptype') ? object(given) : given.transform_values { |one| value(one) }
      else given
      end
    end

    def object(given)
      inner = given['__pvalue']
      case given['__ptype']
      when 'Default' then :default
      when 'Regexp' then Regexp.new(inner)
      when 'Sensitive' then Puppet::Pops::Types::PSensitiveType::Sensitive.new(value(inner))
      when 'Type' then Puppet::Pops::Types::TypeParser.singleton.parse(inner)
      when 'Reference' then Puppet::Resource.new(given['type'], given['title'])
      when 'Hash' then inner.each_slice(2).to_h { |key, one| [value(key), value(one)] }
      end
    end

    def rich(result)
      case result
      when nil, :undef then nil
      when String, Integer, Float, true, false then result
      when :default then { '__ptype' => 'Default' }
      when Symbol then result.to_s
      when Array then result.map { |one| rich(one) }
      when Hash then rich_hash(result)
      when Regexp then { '__ptype' => 'Regexp', '__pvalue' => result.source }
      when Puppet::Pops::Types::PSensitiveType::Sensitive then { '__ptype' => 'Sensitive', '__pvalue' => rich(result.unwrap) }
      when Puppet::Resource then { '__ptype' => 'Reference', 'type' => result.type, 'title' => result.title }
      else type(result)
      end
    end

    def rich_hash(hash)
      plain = hash.keys.all? { |key| key.is_a?(String) && key != '__ptype' }
      return hash.transform_values { |one| rich(one) } if plain

      { '__ptype' => 'Hash', '__pvalue' => hash.flat_map { |key, one| [rich(key), rich(one)] } }
    end

    def type(result)
      case result
      when Puppet::Pops::Types::PResourceType
        return { '__ptype' => 'Reference', 'type' => result.type_name, 'title' => result.title } if result.title

        { '__ptype' => 'ResourceType', '__pvalue' => result.type_name }
      when Puppet::Pops::Types::PClassType
        { '__ptype' => 'Reference', 'type' => 'Class', 'title' => result.class_name }
      when Enumerable then rich(result.to_a)
      else { '__ptype' => result.class.name.to_s }
      end
    end
  end
end
