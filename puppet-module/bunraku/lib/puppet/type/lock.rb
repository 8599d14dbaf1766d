# frozen_string_literal: true

Puppet::Type.newtype(:lock) do
  @doc = <<-DOC
    Holds a lock that the whole fleet shares, for example to elect a database
    master.

        lock { 'db-master':
          ensure => held,
          lease  => '2h',
          notify => Service['postgresql'],
        }

    The first node that asks holds the lock, and renews it with every run. On
    other nodes, the resource is in sync. It changes, and sends notifications,
    only when this node acquires the lock. The lease should be longer than the
    interval between two runs: a node that does not run for longer loses the lock.
  DOC

  newproperty(:ensure) do
    desc 'Whether this node should hold the lock.'
    newvalue(:held) { provider.acquire }
    newvalue(:released) { provider.release }
    defaultto :held

    def retrieve
      provider.current_state
    end

    # A lock that another node holds is in sync: one node is enough.
    def insync?(is)
      case should
      when :held
        provider.renew if is == :held && !resource.noop?
        %i[held elsewhere].include?(is)
      else
        is != :held
      end
    end
  end

  newparam(:name, namevar: true) do
    desc 'The name of the lock.'
  end

  newparam(:lease) do
    desc 'How long the lock is held without a run, for example `2h`.'
    defaultto '2h'
  end

  newparam(:reason) do
    desc 'Shown to everyone who looks at the lock or waits for it.'
  end
end
