# frozen_string_literal: true

# Common code of the providers that call `bunraku trigger fire`.
class Puppet::Provider::Trigger < Puppet::Provider
  # Exit code for a stopped chain of causes: a warning, not a failure of this run.
  STOPPED = 4

  def hosts
    Array(@resource[:hosts])
  end

  # Runs `bunraku trigger fire`. It inherits the environment, which contains the
  # causes of the current run.
  def fire_with(flags)
    words = [command(:bunraku), 'trigger', 'fire', @resource[:name], '--changed'] + flags
    words += ['--hosts', hosts.join(',')] unless hosts.empty?
    words += ['--ttl', @resource[:ttl].to_s] if @resource[:ttl]
    words += ['--reason', @resource[:reason]] if @resource[:reason]
    output = Puppet::Util::Execution.execute(words, failonfail: false, combine: true)
    case output.exitstatus
    when 0 then Puppet.notice("Trigger[#{@resource[:name]}]: #{output.strip}")
    when STOPPED then Puppet.warning("Trigger[#{@resource[:name]}]: #{output.strip}")
    else raise Puppet::Error, "Trigger[#{@resource[:name]}]: #{output.strip}"
    end
  end
end
