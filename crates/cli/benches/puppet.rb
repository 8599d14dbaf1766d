# frozen_string_literal: true

# Puppet code: the worker against Puppet in a warm Ruby and against
# puppetserver, the way from `git push` to compiled catalogs, deploys against
# r10k, and collectors of exported resources. Everything runs one after the other
# on this machine, as root:
#
#   cargo build --release && ruby crates/cli/benches/puppet.rb [PART…] [--bunraku PROGRAM] [--rounds N] [--nodes N]
#
# The parts are `worker`, `server`, `push`, `deploy` and `exports`; without one, all run.
# Puppet, puppetserver, r10k and Puppet's modules come from Debian.

require_relative 'puppet/measure'
require_relative 'puppet/bunraku_server'
require_relative 'puppet/puppet_server'

# Rounds in which classes and types are loaded, before anything is measured.
WARM_UP = 3
# Fleets of exporting nodes, to see what grows.
EXPORTERS = [100, 300, 1000].freeze
EXPORTING = <<~PUPPET
  node 'all' { File <<| tag == 'many' |>> { mode => '0600' } }
  node default {
    Integer[0, 9].each |$n| {
      @@file { "/etc/many/${trusted['certname']}-${n}": content => $facts['kernel'], tag => 'many' }
    }
  }
PUPPET

# A program that reads requests and writes catalogs.
class PipedCompiler
  def initialize(command)
    @command = command
    @input, @output, @thread = Open3.popen2(*command)
  end

  # Compiles every node once.
  def round
    requests.each do |line|
      @input.puts(line)
      answer = @output.gets or abort "#{@command.inspect} ended"
      # Nothing is exported here.
      while answer.start_with?('{"ask":')
        @input.puts('{"answer":[]}')
        answer = @output.gets
      end
      abort answer[0, 500] unless answer.include?('"catalog":')
    end
  end

  # CPU seconds of the program while a block runs.
  def cpu_of
    before = Measure.cpu(@thread.pid)
    yield
    Measure.cpu(@thread.pid) - before
  end

  def end
    @input.close
    @thread.value
  end

  private

  def requests
    @requests ||= NODES.each_with_index.map do |node, id|
      JSON.generate(id: id, node: node, facts: Measure.facts(node), code_id: nil,
                    trusted: { authenticated: 'remote', certname: node, extensions: {} })
    end
  end
end

# The parts of the benchmark. Each prints the rows of a table.
class PuppetBench
  def initialize(program:, rounds:, nodes:)
    @program, @rounds, @nodes = program, rounds, nodes
  end

  # CPU per catalog: plain Puppet, the worker alone, and the whole server. They
  # take turns, so that all see the same machine, and each compiles one catalog
  # at a time.
  def worker
    in_directory do |directory|
      environments = File.join(directory, 'environments')
      Measure.write_environment(File.join(environments, 'production'))
      plain = PipedCompiler.new(['ruby', File.join(CORPUS, 'oracle.rb'), environments, 'production', MODULES, directory])
      alone = PipedCompiler.new(worker_command(directory, environments))
      with_server(directory, File.join(environments, 'production'), slots: 1) do |ours|
        ours.add_nodes(NODES)
        WARM_UP.times { [plain, alone].each(&:round).then { ours.compile_all } }
        spent = Hash.new(0.0)
        @rounds.times do
          spent[:plain] += plain.cpu_of { plain.round }
          spent[:alone] += alone.cpu_of { alone.round }
          before = Measure.cpu(ours.pid)
          spent[:whole] += ours.cpu_of { ours.compile_all }
          spent[:server] += Measure.cpu(ours.pid) - before
        end
        cost = spent.transform_values { |seconds| seconds / (@rounds * NODES.size) }
        row 'Puppet in a warm Ruby', ms(cost[:plain]), 1.0
        row 'the worker alone', ms(cost[:alone]), cost[:alone] / cost[:plain]
        row 'the worker and the server', ms(cost[:whole]), cost[:whole] / cost[:plain]
        row '… of which the server', ms(cost[:server]), cost[:server] / cost[:plain]
      end
    ensure
      [plain, alone].compact.each(&:end)
    end
  end

  # Start, speed and memory.
  def server
    in_directory do |directory|
      environments = File.join(directory, 'environments')
      Measure.write_environment(File.join(environments, 'production'))
      File.chmod(0o755, directory)
      FileUtils.mkdir_p(home = File.join(directory, 'puppetserver'))
      peer = PuppetServer.new(home, environments)
      first = Measure.timed { peer.catalog(NODES.first) }
      3.times { peer.compile_all }
      spent = Measure.timed { @rounds.times { peer.compile_all } }
      memory = Measure.resident(peer.pid)
      row 'puppetserver', seconds(peer.started_after), seconds(first), per_second(spent), mib(memory / SLOTS), mib(memory)
      peer.end
      with_server(directory, File.join(environments, 'production')) do |ours|
        ours.add_nodes(NODES.first(1))
        first = Measure.timed { ours.compile_all }
        ours.add_nodes(NODES.drop(1))
        3.times { ours.compile_all }
        spent = Measure.timed { @rounds.times { ours.compile_all } }
        workers = ours.worker_pids.map { |pid| Measure.resident(pid) }
        row 'bunraku', seconds(ours.started_after), seconds(first), per_second(spent), mib(workers.sum / workers.size),
            mib(workers.sum + Measure.resident(ours.pid))
      end
    end
  end

  # From `git push` to the last catalog.
  def push
    in_directory do |directory|
      names = Array.new(@nodes) { |number| "#{NODES[number % NODES.size]}-n#{number}" }
      with_server(directory, File.join(directory, 'code'), copies: true) do |ours|
        ours.add_nodes(names)
        Measure.until_true(3600, 'the first catalogs') { ours.waiting.zero? }
        clone = File.join(directory, 'clone')
        Measure.run('git', 'clone', '-q', File.join(directory, 'bare'), clone)
        site = File.join(clone, 'manifests/site.pp')
        File.write(site, "#{File.read(site)}\nnotify { 'pushed': }\n")
        Measure.commit_all(clone, 'pushed')
        spent = Measure.timed do
          Measure.git(clone, 'push', '-q', 'origin', 'production')
          ours.deploy
          Measure.until_true(3600, 'the catalogs') { ours.waiting.zero? }
        end
        row "#{@nodes} nodes", seconds(spent), format('%.1f per s', @nodes / spent)
      end
    end
  end

  # The same Puppetfile, with an empty cache, without changes, and with one changed module.
  def deploy
    in_directory do |directory|
      modules = %w[stdlib concat apache mysql postgresql ntp haproxy rabbitmq redis apt systemd firewall inifile keystone nova neutron glance cinder swift heat]
      code = File.join(directory, 'code')
      Measure.write_environment(code)
      lines = modules.map { |name| "mod '#{name}', :git => '#{repository(directory, name)}', :branch => 'production'" }
      File.write(File.join(code, 'Puppetfile'), "#{lines.join("\n")}\n")
      Measure.commit_all(code, 'first')
      row "r10k, #{modules.size} modules", *r10k(directory, code)
      row "bunraku, #{modules.size} modules", *deploys(directory, code)
    end
  end

  # One node collects what many export, ten files each; then one more node exports.
  def exports
    EXPORTERS.each do |count|
      in_directory do |directory|
        with_server(directory, File.join(directory, 'code'), site: EXPORTING, answer_quiet: '1s') do |ours|
          ours.add_nodes(Array.new(count) { |number| format('node-%04d', number) })
          Measure.until_true(3600, 'the exports') { ours.waiting.zero? }
          ours.add_nodes(['all'])
          collected(ours, count)
          ours.add_nodes(['node-last'])
          before = Measure.cpu(ours.pid)
          whole = ours.cpu_of { @spent = Measure.timed { collected(ours, count + 1) } }
          server = Measure.cpu(ours.pid) - before
          row "#{count} exporters", seconds(@spent), seconds(whole), seconds(server), ms(server / count)
        end
      end
    end
  end

  private

  def collected(ours, exporters)
    Measure.until_true(3600, 'the collector') do
      sleep 0.5
      found = ours.catalogs.find { |one| one['node'] == 'all' }
      found && found['resources'].to_i >= exporters * 10
    end
  end

  def in_directory(&block)
    Dir.mktmpdir('bunraku-bench-', &block)
  end

  def row(*cells)
    cells = cells.map { |cell| cell.is_a?(Float) ? format('%.2f', cell) : cell }
    puts "| #{cells.join(' | ')} |"
    $stdout.flush
  end

  def ms(value)
    format('%.0f ms', value * 1000)
  end

  def seconds(value)
    format('%.1f s', value)
  end

  def mib(value)
    format('%.0f MiB', value)
  end

  def per_second(spent)
    format('%.1f per s', @rounds * NODES.size / spent)
  end

  def worker_command(directory, environments)
    program, config = File.join(directory, 'worker.rb'), File.join(directory, 'config.json')
    parts = %w[sandbox server_view other_nodes application_syntax applications function_calls worker start]
    File.write(program, parts.map { |part| File.read(File.join(PARTS, "#{part}.rb")) }.join("\n"))
    missing = '/var/lib/bunraku/puppet'
    read = %w[/usr/lib /usr/share /lib /lib64 /opt/puppetlabs/puppet /var/lib/gems /etc/localtime /dev/null /dev/urandom /proc/1/comm]
    File.write(config, JSON.generate(
      read: read + [directory], memory: 1 << 30, environment: 'production', environmentpath: environments,
      confdir: "#{missing}/conf", vardir: "#{missing}/var", codedir: "#{missing}/code",
      base_modules: [MODULES], settings: {}, server_facts: { servername: 'puppet' }
    ))
    ['ruby', program, config]
  end

  # A server whose environment has the corpus as its code.
  def with_server(directory, code, copies: false, slots: SLOTS, site: nil, answer_quiet: nil)
    Measure.write_environment(code, copies: copies, site: site)
    File.write(File.join(code, 'bunraku.yaml'), "compiler: puppet\nworkers: #{slots}\nrecycle_after: 100000\ntime_limit: 300\n")
    Measure.commit_all(code, 'first')
    bare = File.join(directory, 'bare')
    Measure.run('git', 'clone', '-q', '--bare', code, bare)
    FileUtils.mkdir_p(home = File.join(directory, 'bunraku'))
    server = BunrakuServer.new(@program, home, answer_quiet: answer_quiet)
    server.add_environment(bare)
    server.deploy
    yield server
  ensure
    server&.end
  end

  def repository(directory, name)
    path = File.join(directory, 'modules', name)
    FileUtils.mkdir_p(path)
    FileUtils.cp_r("#{File.realpath(File.join(MODULES, name))}/.", path)
    Measure.commit_all(path, 'first')
    path
  end

  def change_one(directory)
    path = File.join(directory, 'modules/ntp')
    File.write(File.join(path, 'CHANGED'), Measure.now.to_s)
    Measure.commit_all(path, 'changed')
  end

  def three_times(directory)
    cold = Measure.timed { yield }
    same = Measure.timed { yield }
    change_one(directory)
    [cold, same, Measure.timed { yield }].map { |value| seconds(value) }
  end

  def r10k(directory, code)
    config = File.join(directory, 'r10k.yaml')
    File.write(config, JSON.generate('cachedir' => "#{directory}/r10k-cache", 'pool_size' => 8,
                                     'sources' => { 'bench' => { 'remote' => code, 'basedir' => "#{directory}/r10k" } }))
    three_times(directory) { Measure.run('r10k', 'deploy', 'environment', 'production', '-m', '-c', config) }
  end

  def deploys(directory, code)
    FileUtils.mkdir_p(home = File.join(directory, 'bunraku'))
    server = BunrakuServer.new(@program, home, modules: [])
    server.add_environment(code)
    three_times(directory) { server.deploy }
  ensure
    server&.end
  end
end

options = { program: File.join(ROOT, 'target/release/bunraku'), rounds: 10, nodes: 200 }
parts = []
words = ARGV.dup
until words.empty?
  case (word = words.shift)
  when '--bunraku' then options[:program] = words.shift
  when '--rounds' then options[:rounds] = Integer(words.shift)
  when '--nodes' then options[:nodes] = Integer(words.shift)
  when 'worker', 'server', 'push', 'deploy', 'exports' then parts << word
  else abort "unknown argument: #{word}"
  end
end
HEADS = {
  'worker' => ['CPU per catalog', 'ratio'],
  'server' => ['ready after', 'first catalog', 'catalogs', 'memory per slot', 'memory in all'],
  'push' => ['all compiled after', 'catalogs'],
  'deploy' => ['empty cache', 'nothing changed', 'one module changed'],
  'exports' => ['until the collector has the new files', 'CPU in that time', 'of which the server', 'server, per exporter']
}.freeze
bench = PuppetBench.new(**options)
(parts.empty? ? HEADS.keys : parts).each do |part|
  puts "\n#{part}, load #{Measure.load}", "| | #{HEADS[part].join(' | ')} |", "|#{'---|' * (HEADS[part].size + 1)}"
  bench.public_send(part)
end
