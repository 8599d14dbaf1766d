# frozen_string_literal: true

# Applications in a node's catalog, as Puppet 4 to 6 compiled them.
#
# A catalog contains the components that `nodes` maps to its node. A component
# that exports a capability gives it values; they are exported with the catalog.
# A component that consumes a capability gets the values as parameters, from the
# same catalog or from the newest catalog of the producer's node.
#
# Absent on purpose: order between nodes. Plans have it.
module Applications
  ORDER = %i[require before notify subscribe].freeze

  # A capability that a component of this catalog produces.
  Produced = Struct.new(:producer, :values)

  # The applications of one catalog.
  class Compile
    attr_reader :exports, :application, :instances

    def initialize(compiler)
      @compiler = compiler
      @instances = []
      @elsewhere = {}
      @links = {}.compare_by_identity
      @produced = {}
      @found = {}
      @exports = []
    end

    def in_site?
      @in_site
    end

    def evaluate_sites
      top = @compiler.topscope
      ApplicationSyntax.files.values.flat_map(&:sites).each do |site|
        @in_site = true
        evaluate(site, top.newscope(source: top.source, resource: top.resource))
      ensure
        @in_site = false
      end
    end

    # Evaluates the applications with components on this node. Yields each
    # before, to add it to the catalog.
    def evaluate_instances
      each_placed do |instance, here|
        next @elsewhere[instance.ref] = true if here.empty?

        yield instance
        @application, @here = instance, here
        instance.evaluate
      ensure
        @application = @here = nil
        instance.parameters.delete(:nodes)
      end
    end

    # Whether a resource is declared by an application, but not for this node.
    def elsewhere?(scope, resource)
      return false unless @application && scope.resource.equal?(@application)
      return false if @here.include?(resource.ref)

      @elsewhere[resource.ref] = true
    end

    def classes_here(classes, scope)
      return classes unless @application && scope.resource.equal?(@application)

      classes.select { |name, _| @here.include?(Applications.ref('class', name)) }
    end

    # Keeps `export` and `consume` of a component, which are no parameters of its definition.
    def take_links(resource)
      type = resource.resource_type
      return unless type.is_a?(Puppet::Resource::Type)

      links = %i[export consume].to_h do |name|
        param = resource.parameters.delete(name) unless type.arguments.key?(name.to_s)
        [name, references(param&.value, name, resource)]
      end
      @links[resource] = links unless links.values.all?(&:empty?)
    end

    def consume(resource)
      taken = {}
      links(resource, :consume).each do |capability|
        from_capability(resource, capability).each do |name, value|
          if taken.key?(name)
            raise Puppet::Error, "#{resource.ref} gets a value for '#{name}' from #{taken[name].first} and from #{capability.ref}"
          end
          taken[name] = [capability.ref, value]
        end
      end
      taken.each { |name, (_, value)| resource[name] = value if resource[name].nil? }
    end

    def produce(resource, scope)
      links(resource, :export).each do |capability|
        values = produced_values(resource, capability, scope)
        @produced[capability.ref] = Produced.new(resource.ref, values)
        @exports << exported(resource, capability, values)
      end
    end

    # A capability that code reads by its reference.
    def capability(type, title)
      return unless title && Applications.capability?(type.to_s)

      values = capability_values(type.to_s, title)
      resource(type.to_s, title, values) if values
    end

    # Order that leads to other nodes is the plan's.
    def keep_order_within(resources)
      resources.each do |resource|
        ORDER.each do |name|
          param = resource.parameters[name] if resource.is_a?(Puppet::Parser::Resource)
          next if param.nil?

          kept = [param.value].flatten.filter_map { |one| here(one) }
          if kept.empty?
            resource.parameters.delete(name)
          elsif kept != [param.value].flatten
            param.value = kept
          end
        end
      end
    end

    # What a reference means in this catalog: nothing, if it leads elsewhere.
    def here(reference)
      ref = Applications.ref_of(reference)
      return reference if ref.nil?
      return @produced[ref].producer if @produced.key?(ref)

      reference unless @elsewhere.key?(ref) || Applications.capability?(ref[/\A[^\[]*/])
    end

    private

    def evaluate(program, scope)
      Puppet::Pops::Parser::EvaluatingParser.singleton.evaluate(scope, program)
    end

    def links(resource, name)
      @links.dig(resource, name) || []
    end

    def references(value, name, resource)
      [value].flatten.compact.reject { |one| one == :undef || one == '' }.each do |one|
        raise Puppet::Error, "Invalid #{name} in #{resource.ref}: #{one} is not a resource" unless one.is_a?(Puppet::Resource)
      end
    end

    def each_placed
      placed = @instances.map { |instance| [instance, nodes_of(instance)] }
      placed.each do |_, nodes|
        nodes.each { |node, components| components.each { |ref| @elsewhere[ref] = true } unless node == @compiler.node.name }
      end
      placed.each { |instance, nodes| yield instance, nodes.fetch(@compiler.node.name, []) }
    end

    # The components of an application, by node.
    def nodes_of(instance)
      map = instance.parameters[:nodes]&.value || {}
      raise Puppet::Error, "Invalid node mapping in #{instance.ref}: it must be a hash" unless map.is_a?(Hash)

      seen = {}
      map.each_with_object({}) do |(node, components), found|
        unless node.is_a?(Puppet::Resource) && node.type == 'Node'
          raise Puppet::Error, "Invalid node mapping in #{instance.ref}: #{node} is not a Node"
        end
        [components].flatten.each do |component|
          unless component.is_a?(Puppet::Resource)
            raise Puppet::Error, "Invalid node mapping in #{instance.ref}: #{component} is not a resource"
          end
          raise Puppet::Error, "#{instance.ref} maps #{component.ref} to several nodes" if seen[component.ref]

          seen[component.ref] = true
          (found[node.title] ||= []) << component.ref
        end
      end
    end

    def from_capability(resource, capability)
      type = resource.resource_type
      mapping = ApplicationSyntax.mapping('consumes', type.name, capability.type.downcase)
      unless mapping
        raise Puppet::Error, "#{resource.ref} consumes #{capability.ref}, but there is no '#{resource.type} consumes #{capability.type}'"
      end
      values = values_of(resource, capability)
      resource.scope.with_global_scope do |top|
        scope = top.newscope(source: type, resource: resource)
        values.each { |name, value| scope[name] = value }
        scope['name'] = capability.title unless values.key?('name')
        scope['title'] = capability.title unless values.key?('title')
        type.arguments.keys.each_with_object({}) do |name, found|
          program = mapping.attributes[name]
          value = program ? evaluate(program, scope) : values[name]
          found[name] = value unless value.nil?
        end
      end
    end

    def values_of(resource, capability)
      values = capability_values(capability.type, capability.title, except: resource)
      return values if values

      producer = producer_of(capability.ref)
      raise Puppet::Error, "#{resource.ref} consumes #{capability.ref}, which #{producer.ref} cannot produce before" if producer

      raise Puppet::Error, "#{resource.ref} consumes #{capability.ref}, but no compiled catalog produces it yet: " \
                           'this node is compiled again as soon as one does'
    end

    # The values of a capability, from this catalog or from the producer's.
    def capability_values(type, title, except: nil)
      ref = Applications.ref(type, title)
      producer = producer_of(ref)
      producer.evaluate if producer && !producer.equal?(except)
      return @produced[ref]&.values if producer

      @found.fetch(ref) { @found[ref] = values_elsewhere(type, title, ref) }
    end

    def producer_of(ref)
      @links.find { |_, links| links[:export].any? { |capability| capability.ref == ref } }&.first
    end

    def values_elsewhere(type, title, ref)
      tag = "producer:#{@compiler.environment.name}"
      found = OtherNodes.collect(type.capitalize, ['title', '==', title]).select { |one| one['tags'].include?(tag) }
      if found.size > 1
        raise Puppet::Error, "#{ref} is produced on several nodes: #{found.map { |one| one['certname'] }.sort.join(', ')}"
      end
      found.first&.fetch('parameters', {})&.transform_values { |value| OtherNodes.rich(value) }
    end

    def produced_values(resource, capability, scope)
      type = resource.resource_type
      mapping = ApplicationSyntax.mapping('produces', type.name, capability.type.downcase)
      unless mapping
        raise Puppet::Error, "#{resource.ref} exports #{capability.ref}, but there is no '#{resource.type} produces #{capability.type}'"
      end
      known = Puppet::Type.type(capability.type.downcase.to_sym)
      names = known ? known.allattrs.map(&:to_s) & (known.parameters + known.properties.map(&:name)).map(&:to_s) : type.arguments.keys
      (names | mapping.attributes.keys).reject { |name| name == 'name' }.each_with_object({}) do |name, values|
        program = mapping.attributes[name]
        value = if program then evaluate(program, scope)
                elsif scope.exist?(name) then scope[name]
                end
        values[name] = value unless value.nil? || value == :undef
      end
    end

    def exported(producer, capability, values)
      produced = resource(capability.type, capability.title, values)
      secret = values.select { |_, value| value.is_a?(Puppet::Pops::Types::PSensitiveType::Sensitive) }
      produced.sensitive_parameters = secret.keys.map(&:to_sym)
      produced.exported = true
      produced.file, produced.line = producer.file, producer.line
      produced.tag("producer:#{@compiler.environment.name}")
      Puppet.override(rich_data: Puppet[:rich_data]) { produced.to_data_hash }
    end

    def resource(type, title, values)
      made = Puppet::Resource.new(type, title, strict: false)
      values.each { |name, value| made[name] = value }
      made
    end
  end

  # What a compiler does differently if there are applications.
  module InCompiler
    def compile(*)
      Applications.current = Compile.new(self)
      super
    ensure
      Applications.last = Applications.current
      Applications.current = nil
    end

    def evaluate_main
      super
      Applications.current.evaluate_sites
    end

    def evaluate_node_classes
      super
      Applications.current.evaluate_instances { |instance| add_resource(instance.scope, instance) }
    end

    def add_resource(scope, resource)
      current = Applications.in_use or return super

      type = resource.resource_type
      if type.is_a?(Puppet::Resource::Type) && !current.instances.include?(resource) && ApplicationSyntax.application?(type.name)
        raise Puppet::Error, "#{resource.ref} is an application and can only be declared in a site" unless current.in_site?

        return current.instances << resource
      end
      return if current.in_site? || current.elsewhere?(scope, resource)

      current.take_links(resource)
      super
    end

    def evaluate_classes(classes, scope, *rest)
      current = Applications.in_use or return super
      return [] if current.in_site?

      super(current.classes_here(classes, scope), scope, *rest)
    end

    def findresource(*reference)
      found = super
      return found if found || Applications.in_use.nil?

      Applications.current.capability(*reference, *([nil] * (2 - reference.size)))
    end

    def finish
      Applications.in_use&.keep_order_within(resources)
      super
    end
  end

  # What a define or class does differently if it is a component.
  module InType
    def set_resource_parameters(resource, scope) # rubocop:disable Naming/AccessorMethodName
      Applications.in_use&.consume(resource)
      super
      Applications.in_use&.produce(resource, scope)
    end
  end

  # Arrows between components on different nodes have no meaning in a catalog.
  module InRelationship
    def mk_relationship(source, target, catalog)
      current = Applications.in_use or return super

      source, target = current.here(source), current.here(target)
      super unless source.nil? || target.nil?
    end
  end

  class << self
    # The applications of the catalog that is being compiled, and of the one before.
    attr_accessor :current, :last

    def enable
      ApplicationSyntax.enable
      # Capabilities are types with this option.
      Puppet::Type.singleton_class.class_eval { attr_accessor :is_capability }
      Puppet::Parser::Compiler.prepend(InCompiler)
      Puppet::Resource::Type.prepend(InType)
      Puppet::Parser::Relationship.prepend(InRelationship)
    end

    # The applications of the catalog, if any file has their syntax. Without, they must cost nothing.
    def in_use
      current unless ApplicationSyntax.files.empty?
    end

    # The capabilities that the last compiled catalog produces.
    def exports
      last ? last.exports : []
    end

    def ref(type, title)
      "#{type.to_s.split('::').map(&:capitalize).join('::')}[#{type.to_s == 'class' ? title.to_s.split('::').map(&:capitalize).join('::') : title}]"
    end

    # The text of a reference, or nothing if a value is something else.
    def ref_of(value)
      case value
      when Puppet::Resource then value.ref
      when Puppet::Pops::Types::PResourceType then value.title && ref(value.type_name, value.title)
      when Puppet::Pops::Types::PClassType then ref('class', value.class_name)
      when String then value if value.match?(/\A[A-Z][\w:]*\[.*\]\z/m)
      end
    end

    def capability?(type)
      name = type.downcase
      ApplicationSyntax.capability?(name) || (!name.include?(':') && Puppet::Type.type(name.to_sym)&.is_capability)
    end
  end
end
