# frozen_string_literal: true

# Becomes the program of `config_version`, in a sandbox that it cannot leave.

require 'json'
require 'rbconfig'

config = JSON.parse(File.read(ARGV.shift))
system = %w[/bin /usr/bin /usr/local/bin /usr/libexec /etc/passwd /etc/group /etc/nsswitch.conf /etc/ld.so.cache]
begin
  Sandbox.enter(read: config.fetch('read') + system, memory: config.fetch('memory'), programs: true)
rescue Sandbox::Unavailable, SystemCallError => e
  abort "bunraku: the sandbox cannot be set up: #{e.message}"
end
exec([ARGV.first, ARGV.first], *ARGV.drop(1))
