# frozen_string_literal: true

# Common code of the providers that call `bunraku trigger fire`.
class Puppet::Provider::Trigger < Puppet::Provider
  # Exit code for a stopped chain of causes: a warning, not a failure of this run.
  STOPPED = 4

  def hosts
    Array(@resource[:hosts])
  end

  # The tags of the resource's own `tag` parameter.
  def tags
    Array(@resource[:tag]).map(&:to_s)
  end

  # Runs `bunraku trigger fire`. It inherits the environment, which contains the
  # causes of the current run.
  def fire_with(flags)
    words = [command(:bunraku), 'trigger', 'fire', @resource[:name], '--changed'] + flags
    words += ['--hosts', hosts.join(',')] unless hosts.empty?
    words += ['--tags', tags.join(',')] unless tags.empty?
    words += ['--ttl', @resource[:ttl].to_s] if @resource[:ttl]
    words += ['--reason', @resource[:reason]] if @resource[:reason]
    output = Puppet::Util::Execution.execute(words, failonfail: false, combine: true)
    message = "Trigger[#{@resource[:name]}]: #{one_line(output)}"
    case output.exitstatus
    when 0 then Puppet.notice(message)
    when STOPPED then Puppet.warning(message)
    else raise Puppet::Error, message
    end
  end

  # An error and its causes in one line.
  def one_line(output)
    output.lines.map(&:strip).reject(&:empty?).join('; ')
  end
end
