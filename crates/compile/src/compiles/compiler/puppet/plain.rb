# frozen_string_literal: true

# Plain Puppet for one request: runs `puppet catalog compile` as a person
# would, with the inputs of the worker, and answers with its output.
#
# Nothing of the worker is in here, so that comparing the two proves something.
# What Puppet would look up on the server (its name, the certificate, the
# classifier, resources that other nodes export) is given instead.

require 'json'
require 'rbconfig'
require 'stringio'

module Plain
  module_function

  def run(config)
    answers = $stdout.dup
    request = JSON.parse($stdin.gets)
    write_facts(config, request)
    Sandbox.enter(read: config.fetch('read') + BOOT, memory: config.fetch('memory'))
    Sandbox.end_with_parent
    require 'puppet'
    require 'puppet/util/command_line'
    OtherNodes.source = OtherNodes::Server.new($stdin, answers)
    give_inputs(config, request)
    output, errors = captured { Puppet::Util::CommandLine.new('puppet', arguments(config, request)).execute }
    answers.write(answer(request, output, errors), "\n")
    answers.flush
  end

  def write_facts(config, request)
    directory = File.join(config.fetch('yamldir'), 'facts')
    Dir.mkdir(directory)
    facts = { 'name' => request['node'], 'values' => request['facts'] }
    File.write(File.join(directory, "#{request['node']}.yaml"), "--- !ruby/object:Puppet::Node::Facts #{JSON.generate(facts)}\n")
  end

  def arguments(config, request)
    format = config.fetch('settings')['rich_data'] == false ? 'json' : 'rich_data_json'
    arguments = ['catalog', 'compile', request['node'], '--render-as', format, '--log_level', 'err']
    arguments += %w[confdir vardir codedir yamldir environmentpath environment].flat_map { |name| ["--#{name}", config.fetch(name)] }
    arguments += ['--basemodulepath', config.fetch('base_modules').join(':'), '--facts_terminus', 'yaml']
    arguments += ['--certname', config.fetch('server_facts').fetch('servername'), '--node_terminus', 'plain']
    arguments += ['--storeconfigs', '--storeconfigs_backend', 'bunraku']
    arguments + config.fetch('settings').flat_map do |name, value|
      next [] if name == 'trusted_server_facts'

      case value
      when true then ["--#{name}"]
      when false then ["--no-#{name}"]
      else ["--#{name}", value.to_s]
      end
    end
  end

  def give_inputs(config, request)
    ServerView.create_no_directories
    OtherNodes.define_query_function
    require 'puppet/indirector/catalog/compiler'
    require 'puppet/indirector/node/plain'
    server_facts = { 'serverversion' => Puppet.version.to_s }.merge(config.fetch('server_facts'))
    Puppet::Resource::Catalog::Compiler.prepend(Module.new do
      define_method(:set_server_facts) { @server_facts = server_facts }
    end)
    given = request['trusted']
    trusted = Puppet::Context::TrustedInformation.new(given['authenticated'], given['certname'], given['extensions'], {})
    Puppet::Context::TrustedInformation.define_singleton_method(:local) { |_node| trusted }
    classify(request['classification'] || {})
    Object.class_eval(BACKEND, 'backend.rb')
    ServerView.confine
  end

  # A backend for Puppet's storeconfigs, as PuppetDB's terminus is one. It asks
  # for all exported resources of a type and applies the collector's condition
  # here, so that the server's way of doing this is compared as well.
  BACKEND = <<~RUBY
    require 'puppet/indirector/code'

    class Puppet::Resource::Bunraku < Puppet::Indirector::Code
      def search(request)
        found = OtherNodes.collect(request.key, nil)
        filter = request.options[:filter]
        found = found.select { |one| Plain.matches?(one, filter) } if filter
        OtherNodes.resources(found, request.options[:scope])
      end
    end

    class Puppet::Resource::Catalog::Bunraku < Puppet::Indirector::Code
      def find(_request); end

      def save(request)
        Plain.exports = OtherNodes.exports(request.instance)
      end
    end

    class Puppet::Node::Facts::Bunraku < Puppet::Indirector::Code
      def find(_request); end

      def save(_request); end
    end
  RUBY

  class << self
    attr_accessor :exports

    def matches?(resource, filter)
      left, operator, right = filter
      case operator
      when 'and' then matches?(resource, left) && matches?(resource, right)
      when 'or' then matches?(resource, left) || matches?(resource, right)
      when '==' then equal_to?(resource, left, right)
      when '!=' then !equal_to?(resource, left, right)
      else raise Puppet::Error, "Operator #{operator} in #{filter.inspect} not supported"
      end
    end

    private

    def equal_to?(resource, field, value)
      case field
      when 'tag' then resource['tags'].map(&:downcase).include?(value.downcase)
      when 'title' then resource['title'] == value
      else resource['parameters'][field] == value
      end
    end
  end

  def classify(classified)
    Puppet::Node.prepend(Module.new do
      define_method(:fact_merge) do |*arguments|
        self.classes = classified['classes'] if classified['classes']
        self.parameters = classified['parameters'].dup if classified['parameters']
        super(*arguments)
      end
    end)
  end

  def captured
    output, errors = StringIO.new, StringIO.new
    $stdout, $stderr = output, errors
    begin
      yield
    rescue SystemExit
      nil
    end
    [output.string, errors.string]
  ensure
    $stdout, $stderr = STDOUT, STDERR
  end

  def answer(request, output, errors)
    from = output.index('{')
    catalog = from && JSON.parse(output[from..], max_nesting: false)
    catalog['exports'] = exports if catalog && exports && !exports.empty?
    return JSON.generate({ 'id' => request['id'], 'catalog' => catalog }, max_nesting: false) if catalog

    text = errors.gsub(/\e\[[0-9;]*m/, '').lines.uniq.join.strip
    JSON.generate('id' => request['id'], 'error' => { 'message' => "plain Puppet: #{text.empty? ? 'no catalog' : text}" })
  end
end

ENV['HOME'] = File.dirname(ARGV.fetch(0))
ENV['LANG'] = 'C.UTF-8'
Plain.run(JSON.parse(File.read(ARGV.fetch(0))))
