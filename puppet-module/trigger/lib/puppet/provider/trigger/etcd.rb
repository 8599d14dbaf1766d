# frozen_string_literal: true

require_relative '../trigger'

Puppet::Type.type(:trigger).provide(:etcd, parent: Puppet::Provider::Trigger) do
  desc 'Uses keys in etcd, for `trigger::watch` or the original module on the hosts. Needs no server.'

  commands bunraku: 'bunraku'

  def fire
    fire_with(['--provider', 'etcd',
               '--etcd', Array(@resource[:endpoints]).join(','),
               '--etcd-api', @resource[:etcd_api].to_s,
               '--prefix', @resource[:keyprefix],
               '--key-ttl', "#{@resource[:keyttl]}s",
               '--name-of-this-host', Puppet[:certname]] + tls)
  end

  private

  def tls
    flags = { etcd_ca: '--etcd-ca', etcd_certificate: '--etcd-certificate', etcd_key: '--etcd-key' }
    flags.flat_map { |parameter, flag| @resource[parameter] ? [flag, @resource[parameter]] : [] }
  end
end
