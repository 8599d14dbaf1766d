# frozen_string_literal: true

# What Puppet reads once, to know the system that it is loaded on.
BOOT = %w[
  /etc/passwd /etc/group /etc/nsswitch.conf /etc/os-release /etc/debian_version /etc/redhat-release
  /etc/facter /etc/puppetlabs/facter /proc/sys/kernel
].freeze

# What code in the sandbox sees of the server it is compiled on.
module ServerView
  module_function

  def confine
    remember_facts
    refuse_programs
    ignore_config_version
  end

  # Puppet's directories need not exist: nothing is written.
  # Call this before Puppet reads its settings.
  def create_no_directories
    Puppet::Settings.prepend(Module.new { def create_ancestors(*); end })
  end

  # Some resource types ask for facts of the server when they are loaded.
  # In the sandbox, these few are all that is known of it.
  def remember_facts
    require 'etc'
    require 'facter'
    version = Etc.uname[:release][/\A\d+(\.\d+)*/].to_s
    known = %w[osfamily operatingsystem os].to_h { |name| [name, Facter.value(name)] }
    known.update('kernel' => Etc.uname[:sysname], 'kernelversion' => version,
                 'kernelmajversion' => version[/\A\d+(\.\d+)?/])
    Facter.singleton_class.prepend(Module.new do
      define_method(:value) { |name| known[name.to_s] }
    end)
  end

  # The sandbox refuses them anyway; this says it in words, as an error that
  # providers expect when a program is not installed.
  def refuse_programs
    Puppet::Util::Execution.singleton_class.prepend(Module.new do
      def execute(command, *)
        shown = Array(command).join(' ')[0, 200]
        raise Puppet::ExecutionFailure, "the compile sandbox does not run programs: #{shown}"
      end

      def execpipe(command, *)
        execute(command)
      end
    end)
  end

  # Versions of catalogs come from their content.
  def ignore_config_version
    Puppet::Node::Environment.prepend(Module.new { def config_version; end })
  end
end
