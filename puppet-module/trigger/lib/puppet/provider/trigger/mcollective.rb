# frozen_string_literal: true

require_relative '../trigger'

Puppet::Type.type(:trigger).provide(:mcollective, parent: Puppet::Provider::Trigger) do
  desc 'Uses MCollective or Choria: `mco puppet runonce` on each host.'

  commands bunraku: 'bunraku', mco: 'mco'

  def fire
    fire_with(['--provider', 'mcollective'])
  end
end
