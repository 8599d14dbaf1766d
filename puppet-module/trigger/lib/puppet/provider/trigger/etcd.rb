# frozen_string_literal: true

require_relative '../trigger'

Puppet::Type.type(:trigger).provide(:etcd, parent: Puppet::Provider::Trigger) do
  desc 'Uses keys in etcd, for `trigger::watch` on the hosts. Needs no server.'

  commands bunraku: 'bunraku'

  def fire
    fire_with(['--provider', 'etcd',
               '--etcd', Array(@resource[:endpoints]).join(','),
               '--prefix', @resource[:keyprefix],
               '--key-ttl', "#{@resource[:keyttl]}s",
               '--name-of-this-host', Puppet[:certname]])
  end
end
