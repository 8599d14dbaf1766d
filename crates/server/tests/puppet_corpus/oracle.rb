# Plain Puppet, kept warm: compiles each node that is named on standard input
# and writes one JSON line for it. Nothing of Bunraku is in here.
#
#   ruby oracle.rb ENVIRONMENTPATH ENVIRONMENT BASEMODULEPATH DIRECTORY
#
# A line of input: {"node": NAME, "facts": {…}, "extensions": {…}}
require 'json'
require 'puppet'

environments, environment, modules, directory = ARGV
answers = $stdout.dup
$stdout.reopen($stderr)
arguments = ['--confdir', "#{directory}/conf", '--vardir', "#{directory}/var", '--codedir', "#{directory}/code",
             '--environmentpath', environments, '--basemodulepath', modules, '--certname', 'puppet',
             '--environment_timeout', 'unlimited', '--node_terminus', 'plain', '--facts_terminus', 'memory',
             '--storeconfigs', '--storeconfigs_backend', 'nothing']
# Stored configurations without those of other nodes.
require 'puppet/indirector/code'
exports = nil
class Puppet::Resource::Nothing < Puppet::Indirector::Code
  def search(_request)
    []
  end
end

class Puppet::Node::Facts::Nothing < Puppet::Indirector::Code
  def find(_request); end

  def save(_request); end
end

class Puppet::Resource::Catalog::Nothing < Puppet::Indirector::Code
  def find(_request); end
end
Puppet::Resource::Catalog::Nothing.define_method(:save) do |request|
  exports = request.instance.resources.select(&:exported?)
end

Puppet.settings.preferred_run_mode = :server
Puppet.initialize_settings(arguments)
Puppet.push_context(Puppet.base_context(Puppet.settings), 'oracle')
Puppet::Util::Log.level = :emerg
Puppet::Resource::Catalog.indirection.terminus_class = :compiler
Puppet::Node.indirection.terminus_class = :plain
Puppet::Node::Facts.indirection.terminus_class = :memory

while (line = $stdin.gets)
  request = JSON.parse(line)
  name = request['node']
  answer = { 'node' => name }
  begin
    env = Puppet.lookup(:environments).get!(environment.to_sym)
    trusted = Puppet::Context::TrustedInformation.new('remote', name, request['extensions'] || {}, {})
    Puppet.override(current_environment: env, trusted_information: trusted) do
      facts = Puppet::Node::Facts.new(name, request['facts'])
      Puppet::Node::Facts.indirection.save(facts)
      started = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
      exports = nil
      catalog = Puppet::Resource::Catalog.indirection.find(name, environment: env)
      text, exported = Puppet.override(rich_data: true) { [catalog.to_json, (exports || []).map(&:to_data_hash)] }
      answer['cpu'] = Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID) - started
      answer['catalog'] = JSON.parse(text, max_nesting: false)
      answer['catalog']['exports'] = exported unless exported.empty?
    end
  rescue StandardError, ScriptError => e
    answer['error'] = e.message
  end
  answers.puts(JSON.generate(answer, max_nesting: false))
  answers.flush
end
