# An authority as `puppetserver ca setup` makes it: a root, an intermediate
# that signs, a list for each, `serial` and `inventory.txt`.
require 'openssl'
directory = ARGV[0]
def certificate(name, serial, key, issuer, issuer_key)
  made = OpenSSL::X509::Certificate.new
  made.version, made.serial, made.public_key = 2, serial, key.public_key
  made.subject = OpenSSL::X509::Name.new([["CN", name]])
  made.issuer = (issuer || made).subject
  made.not_before, made.not_after = Time.now - 86400, Time.now + 86400 * 365 * 5
  factory = OpenSSL::X509::ExtensionFactory.new(issuer || made, made)
  [["basicConstraints", "CA:TRUE", true], ["keyUsage", "keyCertSign, cRLSign", true],
   ["subjectKeyIdentifier", "hash", false], ["nsComment", "Puppet Server Internal Certificate", false]
  ].each { |extension| made.add_extension(factory.create_extension(*extension)) }
  made.add_extension(factory.create_extension("authorityKeyIdentifier", "keyid:always", false))
  made.sign(issuer_key, OpenSSL::Digest::SHA256.new)
end
def list(authority, key)
  made = OpenSSL::X509::CRL.new
  made.version, made.issuer = 1, authority.subject
  made.last_update, made.next_update = Time.now - 1, Time.now + 86400 * 365 * 5
  factory = OpenSSL::X509::ExtensionFactory.new(authority)
  made.add_extension(factory.create_extension("authorityKeyIdentifier", "keyid:always", false))
  made.add_extension(OpenSSL::X509::Extension.new("crlNumber", OpenSSL::ASN1::Integer(0)))
  made.sign(key, OpenSSL::Digest::SHA256.new)
end
root_key, key = OpenSSL::PKey::RSA.new(2048), OpenSSL::PKey::RSA.new(2048)
root = certificate("Puppet Root CA: 5a2c0c8e8f", 1, root_key, nil, root_key)
own = certificate("Puppet CA: puppet.example.net", 2, key, root, root_key)
File.write(directory + "/ca_crt.pem", own.to_pem + root.to_pem)
File.write(directory + "/ca_key.pem", key.to_pem)
File.write(directory + "/ca_crl.pem", list(own, key).to_pem + list(root, root_key).to_pem)
File.write(directory + "/serial", "0009")
File.write(directory + "/inventory.txt", "0x0008 2025-01-01T00:00:00UTC 2030-01-01T00:00:00UTC /CN=older\n")
Dir.mkdir(directory + "/signed")
