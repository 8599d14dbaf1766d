# frozen_string_literal: true

# CPU time of the warm Puppet worker against plain Puppet in a warm Ruby, for
# ten nodes of the corpus, each compiled several times.
#
#   ruby crates/compile/benches/puppet_worker.rb [ROUNDS]
#
# Both get the same requests over a pipe. The first round, which loads classes
# and types, is not counted. The worker's sandbox and JSON are included.

require 'json'
require 'open3'
require 'tmpdir'

ROOT = File.expand_path('../../..', __dir__)
CORPUS = File.join(ROOT, 'crates/server/tests/puppet_corpus')
PARTS = File.join(ROOT, 'crates/compile/src/compiles/compiler/puppet')
MODULES = '/usr/share/puppet/modules'
NODES = %w[ntp-2 apache-3 mysql-2 postgresql-2 haproxy-2 rabbitmq-2 concat-2 systemd-3 keystone-2 nova-3].freeze
ROUNDS = Integer(ARGV.fetch(0, 10))

def requests
  facts = JSON.parse(File.read(File.join(CORPUS, 'facts/debian.json')))
  NODES.each_with_index.map do |node, id|
    JSON.generate(id: id, node: node, facts: facts.merge('clientcert' => node), code_id: nil,
                  trusted: { authenticated: 'remote', certname: node, extensions: {} })
  end
end

# Clock ticks of a process, in seconds.
def cpu(pid)
  fields = File.read("/proc/#{pid}/stat").split(') ').last.split
  (fields[11].to_i + fields[12].to_i) / 100.0
end

def measure(command)
  Open3.popen2(*command) do |input, output, thread|
    round = lambda do
      requests.each do |line|
        input.puts(line)
        answer = output.gets or abort "#{command.inspect} ended"
        abort answer[0, 500] unless answer.include?('"catalog":')
      end
    end
    round.call
    before = cpu(thread.pid)
    ROUNDS.times { round.call }
    spent = cpu(thread.pid) - before
    input.close
    spent
  end
end

Dir.mktmpdir('bunraku-bench-') do |directory|
  environment = File.join(directory, 'environments/production')
  Dir.mkdir(File.dirname(environment))
  Dir.mkdir(environment)
  Dir.mkdir(File.join(environment, 'manifests'))
  File.write(File.join(environment, 'environment.conf'), "modulepath = modules:$basemodulepath\n")
  File.write(File.join(environment, 'manifests/site.pp'), File.read(File.join(CORPUS, 'nodes.pp')))
  worker = File.join(directory, 'worker.rb')
  File.write(worker, %w[sandbox server_view worker start].map { |part| File.read(File.join(PARTS, "#{part}.rb")) }.join("\n"))
  config = File.join(directory, 'config.json')
  missing = '/var/lib/bunraku/puppet'
  read = %w[/usr/lib /usr/share /lib /lib64 /opt/puppetlabs/puppet /var/lib/gems /etc/localtime /dev/null /dev/urandom /proc/1/comm]
  File.write(config, JSON.generate(
    read: read + [directory], memory: 1 << 30, environment: 'production', environmentpath: File.dirname(environment),
    confdir: "#{missing}/conf", vardir: "#{missing}/var", codedir: "#{missing}/code",
    base_modules: [MODULES], settings: {}, server_facts: { servername: 'puppet' }
  ))
  # In turns, so that both see the same machine.
  ours, plain = 0.0, 0.0
  2.times do
    plain += measure(['ruby', File.join(CORPUS, 'oracle.rb'), File.dirname(environment), 'production', MODULES, directory])
    ours += measure(['ruby', worker, config])
  end
  catalogs = 2 * ROUNDS * NODES.size
  puts format('plain Puppet  %7.1f ms CPU per catalog', plain * 1000 / catalogs)
  puts format('worker        %7.1f ms CPU per catalog', ours * 1000 / catalogs)
  puts format('ratio         %7.2f  (%d catalogs each)', ours / plain, catalogs)
end
