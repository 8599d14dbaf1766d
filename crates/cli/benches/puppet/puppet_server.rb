# frozen_string_literal: true

# Debian's puppetserver, started by hand, without TLS: it trusts the name in a header.
class PuppetServer
  JAR = '/usr/share/puppetserver/puppetserver.jar'

  attr_reader :pid, :started_after

  def initialize(directory, environments)
    abort 'puppetserver is not installed: apt-get install --no-install-recommends puppetserver' unless File.exist?(JAR)

    @port = Measure.free_port
    write_configuration(directory, environments)
    FileUtils.chown_R('puppet', 'puppet', directory)
    log = File.join(directory, 'output')
    @started_after = Measure.timed do
      @pid = Process.spawn(
        'setpriv', '--reuid=puppet', '--regid=puppet', '--init-groups', 'env', "HOME=#{directory}",
        'java', '-Xms1g', '-Xmx1g', '-Djruby.logger.class=com.puppetlabs.jruby_utils.jruby.Slf4jLogger',
        '-Djruby.lib=/usr/share/jruby/lib', '-jar', JAR, '--config', "#{directory}/conf.d",
        '--bootstrap-config', "#{directory}/services.d", '--restart-file', "#{directory}/restart",
        out: log, err: log, chdir: directory
      )
      Measure.until_true(900, 'puppetserver') { running? }
    end
  end

  def catalog(node)
    facts = JSON.generate('name' => node, 'values' => Measure.facts(node))
    form = URI.encode_www_form('environment' => 'production', 'facts_format' => 'application/json', 'facts' => URI.encode_www_form_component(facts))
    reply = Net::HTTP.start('127.0.0.1', @port, read_timeout: 600) do |http|
      http.post("/puppet/v3/catalog/#{node}", form, 'Accept' => 'application/vnd.puppet.rich+json, application/json',
                                                  'X-Client-Verify' => 'SUCCESS', 'X-Client-DN' => "CN=#{node}")
    end
    abort "puppetserver, #{node}: #{reply.code} #{reply.body[0, 500]}" unless reply.is_a?(Net::HTTPSuccess)
    reply.body
  end

  # Every node once, with as many requests at the same time as there are slots.
  def compile_all
    queue = Queue.new
    NODES.each { |node| queue << node }
    Array.new(SLOTS) do
      Thread.new do
        loop { catalog(queue.pop(true)) }
      rescue ThreadError
        nil
      end
    end.each(&:join)
  end

  def end
    Measure.stop(@pid)
  end

  private

  def running?
    abort "puppetserver ended: #{File.read('output') rescue ''}" if Process.wait(@pid, Process::WNOHANG)
    Net::HTTP.get(URI("http://127.0.0.1:#{@port}/status/v1/simple")) == 'running'
  rescue SystemCallError, EOFError, Net::ReadTimeout
    false
  end

  def write_configuration(directory, environments)
    FileUtils.cp_r('/etc/puppet/puppetserver/.', directory)
    %w[conf code var run log ssl public].each { |name| FileUtils.mkdir_p(File.join(directory, name)) }
    File.write("#{directory}/conf/puppet.conf", <<~CONF)
      [main]
      certname = puppet
      environmentpath = #{environments}
      basemodulepath = #{MODULES}
      environment_timeout = unlimited
      node_terminus = plain
      ssldir = #{directory}/ssl
      cadir = #{directory}/ssl/ca
      publicdir = #{directory}/public
      storeconfigs = false
    CONF
    File.write("#{directory}/conf.d/puppetserver.conf", <<~CONF)
      jruby-puppet: {
        ruby-load-path: [/usr/lib/puppetserver/ruby/vendor_ruby]
        gem-home: #{directory}/var/jruby-gems
        gem-path: [${jruby-puppet.gem-home}, "/usr/lib/puppetserver/vendored-jruby-gems"]
        server-conf-dir: #{directory}/conf
        server-code-dir: #{directory}/code
        server-var-dir: #{directory}/var
        server-run-dir: #{directory}/run
        server-log-dir: #{directory}/log
        max-active-instances: #{SLOTS}
      }
      profiler: { enabled: false }
    CONF
    File.write("#{directory}/conf.d/webserver.conf", "webserver: { host: 127.0.0.1, port: #{@port} }\n")
    File.write("#{directory}/conf.d/global.conf", "global: { logging-config: #{directory}/logback.xml }\n")
    quiet = '<configuration><appender name="OUT" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%p %m%n</pattern></encoder></appender>' \
            '<root level="warn"><appender-ref ref="OUT"/></root></configuration>'
    File.write("#{directory}/logback.xml", quiet)
    rules = File.read("#{directory}/conf.d/auth.conf")
    File.write("#{directory}/conf.d/auth.conf", rules.sub('version: 1', "version: 1\n    allow-header-cert-info: true"))
  end
end
