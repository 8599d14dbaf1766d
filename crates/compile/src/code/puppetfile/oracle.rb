# frozen_string_literal: true

# The modules that r10k reads from each Puppetfile on standard input (a JSON list
# of texts), as a JSON list: for each file its modules, or null if r10k refuses it.

require 'json'
require 'tmpdir'
require 'r10k/errors'
require 'r10k/module_loader/puppetfile'

def described(mod, base)
  mod = mod.to_implementation if mod.respond_to?(:to_implementation)
  value = ->(name) { mod.instance_variable_get(name) }
  path = File.join(mod.dirname.to_s, mod.name).delete_prefix("#{base}/")
  case mod
  when R10K::Module::Git
    reference = value.call(:@desired_ref)
    [mod.name, path, 'git', value.call(:@remote), reference.is_a?(Symbol) ? ":#{reference}" : reference]
  when R10K::Module::Forge
    [mod.name, path, 'forge', mod.title.tr('/', '-'), (value.call(:@expected_version) || :latest).to_s]
  when R10K::Module::Local then [mod.name, path, 'local', nil, nil]
  else [mod.name, path, mod.class.name, nil, nil]
  end
end

answers = JSON.parse($stdin.read).map do |text|
  Dir.mktmpdir do |base|
    File.write(File.join(base, 'Puppetfile'), text)
    loaded = R10K::ModuleLoader::Puppetfile.new(basedir: base).load!
    loaded[:modules].map { |mod| described(mod, base) }
  rescue StandardError, ScriptError
    nil
  end
end
puts JSON.generate(answers)
