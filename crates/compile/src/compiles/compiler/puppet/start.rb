# frozen_string_literal: true

# Confines this process and starts the worker in it.

# Puppet asks for a home even if it needs nothing from it.
ENV['HOME'] = File.dirname(ARGV.fetch(0))
ENV['LANG'] = 'C.UTF-8'
config = JSON.parse(File.read(ARGV.fetch(0)))
begin
  Sandbox.enter(read: config.fetch('read') + BOOT, memory: config.fetch('memory'))
rescue Sandbox::Unavailable, SystemCallError => e
  abort "bunraku: the compile sandbox cannot be set up: #{e.message}"
end
begin
  require 'puppet'
rescue LoadError => e
  abort "Puppet is not installed for #{RbConfig.ruby} (#{e.message}): install puppet-agent or openvox-agent on this server"
end
Worker.run(config) do
  Sandbox.confine_files(config.fetch('read'))
  # A thread keeps the confinement that it started with, so this comes last.
  Sandbox.end_with_parent
end
