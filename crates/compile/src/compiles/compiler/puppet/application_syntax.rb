# frozen_string_literal: true

# The syntax of applications: `application`, `site`, `produces` and `consumes`.
#
# Puppet 4 to 6 knew it, later versions do not. It is taken out of a file before
# Puppet parses it: an application becomes a define, and sites and mappings
# become programs of their own. Everything stays at its line and column, except
# what follows on the first line of an application.
module ApplicationSyntax
  WORDS = /\b(?:application|site|produces|consumes)\b/.freeze
  OPENING = %i[LBRACE LBRACK LISTSTART LPAREN WSLPAREN SELBRACE].freeze
  CLOSING = %i[RBRACE RBRACK RPAREN].freeze

  # `Lamp::Mysql produces Sql { host => $host }`; attributes are parsed expressions.
  Mapping = Struct.new(:kind, :component, :capability, :attributes)

  # What one file declares, and the code that is left.
  class Translation
    attr_reader :code, :mappings, :sites, :applications

    def initialize(text, file)
      @file = file
      @code = text.b
      @tokens = tokens(text)
      @mappings, @sites, @applications, @insertions = [], [], [], []
      read_mappings
      read_sites
      read_applications
      @insertions.reverse_each { |at, added| @code.insert(at, added) }
      @code.force_encoding(Encoding::UTF_8)
    end

    def empty?
      @mappings.empty? && @sites.empty? && @applications.empty?
    end

    private

    Token = Struct.new(:kind, :value, :from, :depth)

    def tokens(text)
      lexer = Puppet::Pops::Parser::Lexer2.new
      lexer.lex_string(text, @file)
      depth = 0
      lexer.fullscan.filter_map do |kind, token|
        next unless token

        depth -= 1 if CLOSING.include?(kind)
        found = Token.new(kind, token[:value], token.offset, depth)
        depth += 1 if OPENING.include?(kind)
        found
      end
    end

    def read_mappings
      @tokens.each_cons(4).with_index do |(component, word, capability, brace), index|
        next unless name?(component) && word?(word, 'produces', 'consumes') && name?(capability)
        next unless brace.kind == :LBRACE

        last = closing(index + 3)
        attributes = attributes(index + 4, last)
        @mappings << Mapping.new(word.value, plain(component), plain(capability), attributes)
        blank(component.from, @tokens[last].from + 1)
      end
    end

    # The site is the one block of this name that has no title.
    def read_sites
      @tokens.each_cons(2).with_index do |(word, brace), index|
        next unless word?(word, 'site') && word.depth.zero? && brace.kind == :LBRACE

        last = closing(index + 1)
        next if @tokens[index + 2...last].any? { |token| token.kind == :COLON && token.depth == 1 }

        @sites << program(brace.from + 1, @tokens[last].from)
        blank(word.from, @tokens[last].from + 1)
      end
    end

    # An application also has the parameter `nodes`.
    def read_applications
      @tokens.each_cons(3).with_index do |(word, name, follows), _index|
        next unless word?(word, 'application') && word.depth.zero? && name?(name)
        next unless %i[LPAREN WSLPAREN LBRACE].include?(follows.kind)

        @applications << plain(name)
        @code[word.from, 'application'.size] = 'define     '
        @insertions << (follows.kind == :LBRACE ? [follows.from, '($nodes = undef) '] : [follows.from + 1, '$nodes = undef,'])
      end
    end

    def attributes(from, last)
      found = {}
      while from < last
        name, arrow = @tokens[from, 2]
        break unless arrow&.kind == :FARROW

        depth = name.depth
        to = (from...last).find { |at| @tokens[at].kind == :COMMA && @tokens[at].depth == depth } || last
        found[name.value.to_s] = program(@tokens[from + 2].from, @tokens[to].from)
        from = to + 1
      end
      found
    end

    def closing(opening)
      depth = @tokens[opening].depth
      (opening + 1...@tokens.size).find { |at| CLOSING.include?(@tokens[at].kind) && @tokens[at].depth == depth } ||
        raise(Puppet::ParseError.new("Unclosed '{'", @file))
    end

    def name?(token)
      %i[NAME CLASSREF].include?(token.kind)
    end

    def word?(token, *words)
      token.kind == :NAME && words.include?(token.value)
    end

    def plain(token)
      token.value.downcase.delete_prefix('::')
    end

    # A part of the file, parsed as if it were the whole.
    def program(from, to)
      alone = @code.dup
      alone[to..] = ''
      alone[0...from] = alone[0...from].gsub(/[^\n]/n, ' ')
      Puppet::Pops::Parser::Parser.new.parse_string(alone.force_encoding(Encoding::UTF_8), @file).model
    end

    def blank(from, to)
      @code[from...to] = @code[from...to].gsub(/[^\n]/n, ' ')
    end
  end

  class << self
    # The declarations of all files that were parsed, by file.
    def files
      @files ||= {}
    end

    def enable
      Puppet::Pops::Parser::Parser.prepend(Module.new do
        def parse_file(file)
          code = ApplicationSyntax.code_without(file)
          code ? parse_string(code, file) : super
        end
      end)
    end

    # The code of a file without the syntax, or nothing if the file does not use it.
    def code_without(file)
      files.delete(file)
      return unless file.is_a?(String) && file.end_with?('.pp') && Puppet::FileSystem.exist?(file)

      text = Puppet::FileSystem.read(file, encoding: 'utf-8')
      return unless text.valid_encoding? && text.match?(WORDS)

      translation = Translation.new(text, file)
      return if translation.empty?

      files[file] = translation
      translation.code
    rescue Puppet::ParseErrorWithIssue => e
      # Puppet finds an error of the lexer again, and says where it is.
      raise if e.issue_code.to_s == 'SYNTAX_ERROR'

      nil
    end

    def application?(name)
      files.each_value.any? { |file| file.applications.include?(name) }
    end

    def mapping(kind, component, capability)
      files.each_value do |file|
        found = file.mappings.find { |one| one.kind == kind && one.component == component && one.capability == capability }
        return found if found
      end
      nil
    end

    def capability?(type)
      files.each_value.any? { |file| file.mappings.any? { |one| one.capability == type } }
    end
  end
end
