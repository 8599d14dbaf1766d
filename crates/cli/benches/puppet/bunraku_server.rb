# frozen_string_literal: true

# A Bunraku server in its own process, with nodes that have sent facts.
class BunrakuServer
  NAME = 'bench.test'

  attr_reader :pid, :started_after

  def initialize(program, directory, modules: [MODULES], enc: nil, answer_quiet: nil)
    @program, @directory = program, directory
    config = File.join(directory, 'bunraku.toml')
    lines = ['[server.compile.puppet]', "base_modules = #{modules.inspect}", 'server_name = "puppet"']
    lines << "enc = #{[enc].inspect}" if enc
    lines = ['[server.compile]', "answer_quiet = #{answer_quiet.inspect}"] + lines if answer_quiet
    File.write(config, "#{lines.join("\n")}\n")
    @log = File.join(directory, 'log')
    output, writer = IO.pipe
    @started_after = Measure.timed do
      @pid = Process.spawn(program, '--config', config, 'server', '--listen', '127.0.0.1:0', '--name', NAME, '--log', 'error',
                           '--data-dir', File.join(directory, 'data'), out: writer, err: @log)
      writer.close
      line = output.gets or abort "the server ended: #{File.read(@log)}"
      @port = JSON.parse(line).fetch('listening')[/\d+\z/].to_i
    end
  end

  def call(*arguments)
    Measure.run(@program, '--server', "127.0.0.1:#{@port}", '--credentials', File.join(@directory, 'data/operator'), *arguments)
  end

  # The output of a command, whether it succeeds or not.
  def try(*arguments)
    Open3.capture2e(@program, '--server', "127.0.0.1:#{@port}", '--credentials', File.join(@directory, 'data/operator'), *arguments).first
  end

  def add_environment(repository)
    call('environment', 'add', 'production', repository)
  end

  def deploy
    call('environment', 'deploy', 'production', '--wait')
  end

  # Sends facts as each of the nodes does.
  def add_nodes(names)
    names.each do |name|
      credentials = File.join(@directory, 'nodes', name)
      call('cert', 'issue', name, '--role', 'node', '--out', credentials)
      put_facts(name, credentials)
    end
  end

  def compile_all
    call('compile', '--all', '--wait')
  end

  def waiting
    JSON.parse(call('compile', 'queue', '--json')).then { |queue| queue.is_a?(Array) ? queue : queue.values.grep(Array).flatten(1) }.size
  end

  def catalogs
    JSON.parse(call('catalog', 'list', '--json'))
  end

  def worker_pids
    Measure.children(@pid)
  end

  # CPU seconds of the server and of its workers.
  def cpu
    ([@pid] + worker_pids).sum { |pid| Measure.cpu(pid) }
  end

  # CPU seconds of both while a block runs.
  def cpu_of
    before = cpu
    yield
    cpu - before
  end

  def end
    Measure.stop(@pid)
  end

  private

  def put_facts(name, credentials)
    http = Net::HTTP.new(NAME, @port)
    http.ipaddr = '127.0.0.1'
    http.use_ssl = true
    http.ca_file = File.join(credentials, 'ca.pem')
    http.cert = OpenSSL::X509::Certificate.new(File.read(File.join(credentials, 'cert.pem')))
    http.key = OpenSSL::PKey.read(File.read(File.join(credentials, 'key.pem')))
    reply = http.send_request('PUT', "/v1/nodes/#{name}/facts", JSON.generate(Measure.facts(name)), 'Content-Type' => 'application/json')
    abort "facts of #{name}: #{reply.code} #{reply.body}" unless reply.is_a?(Net::HTTPSuccess)
  end
end
