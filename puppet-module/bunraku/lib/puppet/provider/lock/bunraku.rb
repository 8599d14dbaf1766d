# frozen_string_literal: true

require 'json'

Puppet::Type.type(:lock).provide(:bunraku) do
  desc 'Uses a Bunraku server.'

  commands bunraku: 'bunraku'

  # :held by this node, :elsewhere, or :released.
  def current_state
    @holder = nil
    output = run(['lock', 'list', '--json'])
    raise Puppet::Error, "cannot read the locks: #{output}" unless output.exitstatus.zero?

    lock = JSON.parse(output).find { |entry| entry['name'] == @resource[:name] }
    holders = lock ? lock['holders'] : []
    @holder = holders.find { |holder| own?(holder) }
    return :held if @holder

    slots = lock ? lock['slots'] : 1
    holders.length >= slots ? :elsewhere : :released
  end

  def acquire
    words = ['lock', 'acquire', @resource[:name], '--as', session, '--lease', @resource[:lease]]
    words += ['--reason', @resource[:reason]] if @resource[:reason]
    output = run(words)
    case output.exitstatus
    when 0 then nil
    when 11 then Puppet.notice("Lock[#{@resource[:name]}]: #{output.strip}")
    else raise Puppet::Error, "cannot acquire the lock: #{output.strip}"
    end
  end

  def renew
    output = run(['lock', 'renew', @resource[:name], '--token', @holder['token'].to_s])
    return if output.exitstatus.zero?

    raise Puppet::Error, "the lock was lost: #{output.strip}"
  end

  def release
    output = run(['lock', 'release', @resource[:name], '--token', @holder['token'].to_s])
    # 4: the lock is no longer held, which is the desired state.
    return if [0, 4].include?(output.exitstatus)

    raise Puppet::Error, "cannot release the lock: #{output.strip}"
  end

  private

  # The session of Puppet on this node: the same one every run.
  def session
    'puppet'
  end

  def own?(holder)
    holder['session'] == session && holder['own']
  end

  def run(words)
    Puppet::Util::Execution.execute([command(:bunraku)] + words, failonfail: false, combine: false)
  end
end
