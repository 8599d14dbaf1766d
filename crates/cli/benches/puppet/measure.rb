# frozen_string_literal: true

# What the parts of the benchmark share: the corpus, processes and their cost.

require 'fileutils'
require 'json'
require 'net/http'
require 'open3'
require 'openssl'
require 'shellwords'
require 'socket'
require 'tmpdir'

ROOT = File.expand_path('../../../..', __dir__)
CORPUS = File.join(ROOT, 'crates/server/tests/puppet_corpus')
PARTS = File.join(ROOT, 'crates/compile/src/compiles/compiler/puppet')
MODULES = '/usr/share/puppet/modules'
NODES = %w[ntp-2 apache-3 mysql-2 postgresql-2 haproxy-2 rabbitmq-2 concat-2 systemd-3 keystone-2 nova-3].freeze
# Compiles at the same time, here and there.
SLOTS = 2

module Measure
  module_function

  def now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end

  # Seconds that a block takes.
  def timed
    started = now
    yield
    now - started
  end

  # CPU seconds of a process, without its children.
  def cpu(pid)
    fields = File.read("/proc/#{pid}/stat").split(') ').last.split
    (fields[11].to_i + fields[12].to_i) / 100.0
  end

  # Resident memory of a process in MiB.
  def resident(pid)
    File.read("/proc/#{pid}/status")[/VmRSS:\s+(\d+)/, 1].to_i / 1024.0
  end

  def children(pid)
    Dir.glob("/proc/#{pid}/task/*/children").flat_map { |path| File.read(path).split.map(&:to_i) }
  end

  def facts(node)
    known = JSON.parse(File.read(File.join(CORPUS, 'facts/debian.json')))
    known.merge('clientcert' => node)
  end

  # The corpus. With `copies`, also for nodes with a number behind their name.
  def write_environment(directory, copies: false, site: nil)
    FileUtils.mkdir_p(File.join(directory, 'manifests'))
    File.write(File.join(directory, 'environment.conf'), "modulepath = modules:$basemodulepath\n")
    manifest = site || File.read(File.join(CORPUS, 'nodes.pp'))
    manifest = manifest.gsub(/^node '([\w-]+)'/) { "node /^#{Regexp.last_match(1)}(-n\\d+)?$/" } if copies
    File.write(File.join(directory, 'manifests/site.pp'), manifest)
  end

  def run(*command, **options)
    output, status = Open3.capture2e(*command, **options)
    abort "#{command.shelljoin}: #{output}" unless status.success?
    output
  end

  # Ends a process, and waits for its end.
  def stop(pid)
    Process.kill('TERM', pid)
    Process.wait(pid)
  end

  def free_port
    TCPServer.open('127.0.0.1', 0) { |server| server.addr[1] }
  end

  def until_true(limit, what)
    deadline = now + limit
    until yield
      abort "#{what}: not within #{limit} s" if now > deadline
      sleep 0.05
    end
  end

  def git(directory, *arguments)
    run('git', '-c', 'user.name=bench', '-c', 'user.email=bench@example.com', '-C', directory, *arguments)
  end

  def commit_all(directory, message)
    git(directory, 'init', '-q', '-b', 'production') unless Dir.exist?(File.join(directory, '.git'))
    git(directory, 'add', '-A')
    git(directory, 'commit', '-q', '-m', message)
  end

  def load
    File.read('/proc/loadavg').split.first
  end
end
