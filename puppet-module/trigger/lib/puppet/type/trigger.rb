# frozen_string_literal: true

Puppet::Type.newtype(:trigger) do
  @doc = <<-DOC
    Starts a run on other nodes when it is notified.

    Declaring a trigger does nothing. A refresh fires it, except in noop mode.

        trigger { 'refresh load balancers':
          hosts => ['lb01.example.com', 'lb02.example.com'],
        }

        apache::vhost { 'first.example.com':
          notify => Trigger['refresh load balancers'],
        }
  DOC

  newparam(:name, namevar: true) do
    desc 'The name of the trigger.'

    validate do |value|
      unless value =~ %r{\A[A-Za-z0-9_][A-Za-z0-9._:/() -]{0,252}\z}
        raise ArgumentError, "#{value.inspect} cannot be the name of a trigger: " \
                             'only letters, digits, `.`, `-`, `_`, `:`, `/`, `(`, `)` and spaces are allowed'
      end
    end
  end

  newparam(:hosts, array_matching: :all) do
    desc 'The nodes to start. Without it, the bunraku provider uses the definition of the trigger, and the ' \
         'etcd provider starts every watcher.'
  end

  newparam(:query) do
    desc 'Start the nodes that this query finds. For the bunraku provider.'
  end

  newparam(:ttl) do
    desc 'How many triggers can follow from this one in a chain.'

    validate do |value|
      raise ArgumentError, "ttl must be a whole number, not #{value.inspect}" unless value.to_s =~ /\A\d+\z/
    end
  end

  newparam(:reason) do
    desc 'Shown wherever the trigger appears.'
  end

  newparam(:deadline) do
    desc 'How long to wait for a disconnected node, for example `4h`. For the bunraku provider.'
  end

  newparam(:keyprefix) do
    desc 'The prefix of every key. For the etcd provider.'
    defaultto '/puppet_trigger/events'
  end

  newparam(:keyttl) do
    desc 'The lifetime of a key, in seconds. For the etcd provider.'
    defaultto 180
  end

  newparam(:endpoints, array_matching: :all) do
    desc 'The client addresses of etcd. For the etcd provider.'
    defaultto ['http://127.0.0.1:2379']
  end

  newparam(:etcd_api) do
    desc 'The etcd API to use: `v2`, `v3`, or both if etcd serves both (`auto`). For the etcd provider.'
    newvalues(:auto, :v2, :v3)
    defaultto :auto
  end

  newparam(:etcd_ca) do
    desc 'The file with the CA of etcd. For the etcd provider.'
  end

  newparam(:etcd_certificate) do
    desc 'The file with the client certificate for etcd. For the etcd provider.'
  end

  newparam(:etcd_key) do
    desc 'The file with the key of the client certificate. For the etcd provider.'
  end

  validate do
    # MCollective cannot address everyone who listens.
    if Array(self[:hosts]).empty? && provider.class.name == :mcollective
      raise Puppet::Error, 'a trigger needs `hosts` with this provider'
    end
    if self[:etcd_certificate].nil? != self[:etcd_key].nil?
      raise Puppet::Error, '`etcd_certificate` and `etcd_key` need each other'
    end
  end

  def refresh
    provider.fire
  end
end
