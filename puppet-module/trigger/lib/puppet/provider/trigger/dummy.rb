# frozen_string_literal: true

Puppet::Type.type(:trigger).provide(:dummy) do
  desc 'Logs that the trigger was fired, and starts nothing.'

  def fire
    Puppet.notice("Trigger[#{@resource[:name]}]: fired, and nothing was started")
  end
end
