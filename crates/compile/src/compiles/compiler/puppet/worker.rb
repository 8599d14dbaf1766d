# frozen_string_literal: true

# A warm Puppet that compiles catalogs for one environment at one commit.
#
# The first argument is a file with what does not change between requests.
# Requests come one JSON line each on standard input; each is answered with one
# line: a catalog, or errors, and what was logged on the way. In between, code may
# ask about other nodes.
#
# Absent on purpose: anything about the outcome. Files are made static, ids are
# computed and errors are shown by the server.

require 'json'
require 'rbconfig'

module Worker
  # Most messages that are kept of one compile, and most characters of one.
  MOST_NOTES = 200
  LONGEST_NOTE = 2_000

  # What Puppet logs while it compiles.
  class Notes
    LEVELS = %i[notice warning err alert emerg crit].freeze
    ERRORS = %w[err alert emerg crit].freeze

    # Places are shown from the environment's root.
    def initialize(root)
      @root = "#{root}/"
      clear
    end

    def clear
      @notes = []
      @left_out = 0
    end

    def add(message)
      return unless LEVELS.include?(message.level)

      if @notes.size >= MOST_NOTES
        @left_out += 1
      else
        @notes << note(message)
      end
    end

    # Errors that Puppet itself logged: code logs with its scope as the source.
    def errors
      @notes.select { |note| ERRORS.include?(note[:level]) && !note[:message].start_with?('Scope(') }
    end

    # A failure is logged as well as raised, and needs to be shown once.
    def take(failed:)
      notes = failed ? @notes - errors : @notes
      notes += [{ level: 'warning', message: "#{@left_out} more messages were left out" }] if @left_out.positive?
      clear
      notes
    end

    def below_root(text)
      text.gsub(@root, '')
    end

    private

    def note(message)
      text = message.message.to_s.scrub
      text = "#{text[0, LONGEST_NOTE]}…" if text.size > LONGEST_NOTE
      source = message.source.to_s
      text = "#{source}: #{text}" unless ['', 'Puppet'].include?(source)
      { level: message.level.to_s, message: below_root(text), file: message.file, line: message.line,
        column: message.pos }.compact
    end
  end

  # What went wrong, with its place as Puppet reports it.
  module CompileErrors
    PLACE = /\s*\(file: (?<file>[^()]*?)(?:, line: (?<line>\d+))?(?:, column: (?<column>\d+))?\)\z/.freeze
    SANDBOX = 'Code is compiled in a sandbox: it can read the files of its commit, ' \
              'and cannot write files, run programs or use the network.'

    module_function

    def of(error, notes, config)
      case error
      when NoMemoryError then [memory(config)]
      when SystemStackError then [{ message: 'The code calls itself too deeply' }]
      when SystemExit then [{ message: 'The code tried to end the compiler' }]
      else placed(error, notes)
      end
    end

    def memory(config)
      { message: "The compile needs more memory than its limit of #{config.fetch('memory') >> 20} MiB",
        hint: 'Raise `memory_limit` in bunraku.yaml if the code is right.' }
    end

    # Several errors in one file are logged one by one and then summed up.
    def placed(error, notes)
      text = error.message.to_s.scrub.sub(/ on node \S+\z/, '')
      if text.include?('Language validation logged')
        each = notes.errors.reject { |note| note[:message].include?('Language validation logged') }
        return each.map { |note| place(note[:message], note, nil, notes) } unless each.empty?
      end
      known = { file: ask(error, :file), line: ask(error, :line), column: ask(error, :pos) }.compact
      [place(text, known, hint(error), notes)]
    end

    def place(text, known, hint, notes)
      found = PLACE.match(text)
      place = known.slice(:file, :line, :column)
      if found
        text = text.delete_suffix(found[0])
        place[:file] ||= found[:file]
        place[:line] ||= found[:line]&.to_i
        place[:column] ||= found[:column]&.to_i
      end
      { message: notes.below_root(text), hint: hint }.merge(place).compact
    end

    def ask(error, name)
      error.respond_to?(name) ? error.public_send(name) : nil
    end

    def hint(error)
      causes = [error]
      causes << causes.last.cause while causes.last.cause && causes.size < 10
      refused = causes.any? { |one| [Errno::EACCES, Errno::EPERM].include?(one.class) } ||
                error.message.match?(/Permission denied @|Operation not permitted -|compile sandbox/)
      SANDBOX if refused
    end
  end

  class << self
    # Yields when Puppet is loaded, before any code of the environment is.
    def run(config)
      @config = config
      @answers = $stdout.dup
      # What code prints must not look like an answer.
      $stdout.reopen($stderr)
      boot
      yield
      while (line = $stdin.gets)
        answer(JSON.parse(line))
      end
    end

    private

    def boot
      @notes = Notes.new(File.join(@config.fetch('environmentpath'), @config.fetch('environment')))
      load_puppet
      notes = @notes
      Puppet::Util::Log.newdesttype(:bunraku) do
        match 'Worker::Notes'
        define_method(:handle) { |message| notes.add(message) }
        def initialize(_notes); end
      end
      Puppet::Util::Log.newdestination(@notes)
      Puppet::Util::Log.level = :notice
    end

    def load_puppet
      require 'puppet'
      require 'puppet/parser/compiler'
      arguments = %w[confdir vardir codedir environmentpath].flat_map { |name| ["--#{name}", @config.fetch(name)] }
      arguments += ['--basemodulepath', @config.fetch('base_modules').join(':')]
      # A name, so that Puppet does not ask Facter for one.
      arguments += ['--certname', @config.fetch('server_facts').fetch('servername')]
      arguments += ['--environment_timeout', 'unlimited', '--environment', @config.fetch('environment')]
      arguments += ['--storeconfigs']
      arguments += @config.fetch('settings').flat_map { |name, value| setting(name, value) }
      ServerView.create_no_directories
      Puppet.settings.preferred_run_mode = Puppet.version.to_i >= 7 ? :server : :master
      Puppet.initialize_settings(arguments)
      Puppet.push_context(Puppet.base_context(Puppet.settings), 'Bunraku')
      ServerView.confine
      Applications.enable
      keep_environment
      collect_from_server
    end

    # Puppet asks again in every round of evaluating collectors; the answer
    # belongs to the compile.
    def collect_from_server
      OtherNodes.source = OtherNodes::Server.new($stdin, @answers)
      OtherNodes.define_query_function
      collected = @collected = {}
      Puppet::Resource.indirection.define_singleton_method(:search) do |type, options|
        collected[[type, options[:filter]]] ||=
          OtherNodes.resources(OtherNodes.collect(type, options[:filter]), options[:scope])
      end
    end

    # A commit never changes, whatever its environment.conf says.
    def keep_environment
      Puppet::Settings::EnvironmentConf.prepend(Module.new do
        def environment_timeout
          Float::INFINITY
        end
      end)
    end

    # Versions differ in their settings. A setting that has no effect must not look as if it had one.
    def setting(name, value)
      # Always on since Puppet 6.
      return [] if name == 'trusted_server_facts'

      unless Puppet.settings.include?(name.to_sym)
        abort "Puppet #{Puppet.version} has no setting `#{name}`: remove it from `settings` in bunraku.yaml"
      end
      case value
      when true then ["--#{name}"]
      when false then ["--no-#{name}"]
      else ["--#{name}", value.to_s]
      end
    end

    def answer(request)
      @notes.clear
      before = Thread.list
      result, errors = nil
      begin
        result = perform(request)
      rescue StandardError, ScriptError, NoMemoryError, SystemStackError, SystemExit, SecurityError => e
        errors = CompileErrors.of(e, @notes, @config)
        # After a syntax error, Puppet does not find classes that it has not loaded yet.
        Puppet.lookup(:environments).clear_all
      end
      errors ||= left_threads(before)
      reply = { id: request['id'], notes: @notes.take(failed: !errors.nil?), errors: errors || [] }
      send(reply, request.key?('call') ? 'result' : 'catalog', errors ? nil : result)
    end

    # The result is text already: it is put into the line as it is.
    def send(reply, name, result)
      line = JSON.generate(reply)
      line = %(#{line.delete_suffix('}')},"#{name}":#{result}}) if result
      @answers.write(line, "\n")
      @answers.flush
    end

    def perform(request)
      forget_warnings
      @collected.clear
      environment = Puppet.lookup(:environments).get!(@config.fetch('environment').to_sym)
      request.key?('call') ? FunctionCalls.call(request, environment) : compile(request, environment)
    end

    def compile(request, environment)
      node = node(request, environment)
      trusted = trusted(request['trusted'])
      context = { current_environment: environment, trusted_information: trusted }
      Puppet.override(context, 'Bunraku compiles') do
        node.trusted_data = trusted.to_h
        catalog = environment.with_text_domain { Puppet::Parser::Compiler.compile(node, request['code_id']) }
        exports = OtherNodes.exports(catalog) + Applications.exports
        catalog = catalog.filter(&:virtual?)
        data = Puppet.override(rich_data: Puppet[:rich_data]) { catalog.to_data_hash }
        data['exports'] = exports unless exports.empty?
        JSON.generate(data)
      end
    end

    # A warning that is logged once per process belongs to each catalog.
    def forget_warnings
      Puppet.clear_deprecation_warnings if Puppet.respond_to?(:clear_deprecation_warnings)
      Puppet::Util::Warnings.clear_warnings if Puppet::Util::Warnings.respond_to?(:clear_warnings)
      $unique_warnings = {} # rubocop:disable Style/GlobalVars
    end

    def node(request, environment)
      facts = Puppet::Node::Facts.new(request['node'], request['facts'])
      classified = request['classification'] || {}
      node = Puppet::Node.new(request['node'], environment: environment, facts: facts)
      node.classes = classified['classes'] if classified['classes']
      node.parameters = classified['parameters'] if classified['parameters']
      node.fact_merge(facts)
      node.add_server_facts({ 'serverversion' => Puppet.version.to_s }.merge(@config.fetch('server_facts')))
      node
    end

    def trusted(given)
      Puppet::Context::TrustedInformation.new(
        given['authenticated'], given['certname'], given['extensions'] || {}, given['external'] || {}
      )
    end

    # A thread that goes on would work during the next node's compile.
    def left_threads(before)
      left = Thread.list.reject { |thread| before.include?(thread) || thread.name.to_s.start_with?('Timeout') }
      return if left.empty?

      left.each(&:kill)
      [{ message: "The code left #{left.size == 1 ? '1 thread' : "#{left.size} threads"} running" }]
    end
  end
end
