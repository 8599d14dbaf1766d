# Loads a context as the agent does before each run: chain, key, expiry and
# revocation of every certificate. Then prints the trusted extensions.
require 'puppet'
require 'puppet/ssl'
require 'puppet/ssl/oids'
Puppet.initialize_settings(["--confdir", ARGV[0], "--vardir", ARGV[0] + "/var"])
Puppet::SSL::Oids.register_puppet_oids
split = ->(file, tag) { File.read(file).scan(/-----BEGIN #{tag}.*?-----END #{tag}-----/m) }
key = OpenSSL::PKey.read(File.read(ARGV[1]))
own = OpenSSL::X509::Certificate.new(File.read(ARGV[2]))
trusted = split.(ARGV[3], 'CERTIFICATE').map { |text| OpenSSL::X509::Certificate.new(text) }
lists = split.(ARGV[4], 'X509 CRL').map { |text| OpenSSL::X509::CRL.new(text) }
Puppet::SSL::SSLProvider.new.create_context(cacerts: trusted, crls: lists,
  private_key: key, client_cert: own, revocation: :chain)
Puppet::SSL::Certificate.from_instance(own).custom_extensions.each { |e| puts "#{e['oid']}=#{e['value']}" }
