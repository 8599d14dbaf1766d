# frozen_string_literal: true

require_relative '../trigger'

Puppet::Type.type(:trigger).provide(:bunraku, parent: Puppet::Provider::Trigger) do
  desc 'Uses a Bunraku server. Disconnected hosts are started when they return, until the deadline.'

  commands bunraku: 'bunraku'
  defaultfor kernel: :linux

  def fire
    flags = []
    flags += ['--query', @resource[:query]] if @resource[:query]
    flags += ['--deadline', @resource[:deadline]] if @resource[:deadline]
    fire_with(flags)
  end
end
