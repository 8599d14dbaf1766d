# frozen_string_literal: true

# Prints the value of every fact that plugins define, one JSON array per line.
#
# Facts of the machine itself are evaluated only if another fact asks for them.

require 'json'

directory = ARGV.shift
answers = $stdout.dup
# What facts print must not look like an answer.
$stdout.reopen($stderr)

begin
  require 'facter'
rescue LoadError
  exit 0
end

begin
  # Facts may ask for Puppet's settings.
  require 'puppet'
  Puppet.settings.preferred_run_mode = :agent
  Puppet.initialize_settings(ARGV)
rescue LoadError
  nil
end

names = []
Facter.singleton_class.prepend(Module.new do
  define_method(:add) do |name, *options, **more, &block|
    names << name.to_s
    super(name, *options, **more, &block)
  end

  define_method(:define_fact) do |name, *options, **more, &block|
    names << name.to_s
    super(name, *options, **more, &block)
  end
end)

# Puppet has asked for facts already, and Facter searches its path once.
Facter.reset
$LOAD_PATH.unshift(File.join(directory, 'lib'))
Facter.search(File.join(directory, 'lib', 'facter'))
Facter.loadfacts
names.uniq.each do |name|
  value = begin
    Facter.value(name)
  rescue StandardError, ScriptError => e
    warn "#{name}: #{e.message}"
    nil
  end
  answers.puts JSON.generate([name, value]) unless value.nil?
end
answers.flush
