# Makes a request as the agent does; prints the key, then the request.
require 'puppet'
require 'puppet/x509'
require 'puppet/ssl/oids'
directory, name = ARGV
Puppet.initialize_settings(["--confdir", directory, "--vardir", directory + "/var",
  "--csr_attributes", directory + "/csr_attributes.yaml"])
Puppet::SSL::Oids.register_puppet_oids
key = OpenSSL::PKey::RSA.new(2048)
request = Puppet::X509::CertProvider.new.create_request(name, key)
puts key.to_pem, request.to_pem
