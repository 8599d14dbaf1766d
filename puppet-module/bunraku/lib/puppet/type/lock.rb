# frozen_string_literal: true

Puppet::Type.newtype(:lock) do
  @doc = <<-DOC
    Holds a lock that the whole fleet shares, for example to be the one
    database master.

        lock { 'db-master':
          ensure => held,
          lease  => '2h',
          notify => Service['postgresql'],
        }

    Whoever asks first holds it, and renews it with every run; the others are
    content that somebody does. It is a change, and notifies, only when this
    node comes to hold it. The lease should be longer than the time between
    two runs: a node that stays away for longer loses the lock.
  DOC

  newproperty(:ensure) do
    desc 'Whether this node wants the lock.'
    newvalue(:held) { provider.acquire }
    newvalue(:released) { provider.release }
    defaultto :held

    def retrieve
      provider.standing
    end

    # Held by another node is as good as held: one of them has it.
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
    desc 'How long the lock stays without a run, for example `2h`.'
    defaultto '2h'
  end

  newparam(:reason) do
    desc 'Shown to those who look and wait.'
  end
end
