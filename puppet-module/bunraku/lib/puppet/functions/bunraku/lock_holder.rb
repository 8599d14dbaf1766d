# frozen_string_literal: true

require 'json'

# Returns the certificate name of the node that holds a lock, or undef.
Puppet::Functions.create_function(:'bunraku::lock_holder') do
  # @param name The lock.
  # @return The holder.
  # @example Find the database master
  #   $master = bunraku::lock_holder('db-master')
  dispatch :holder do
    param 'String[1]', :name
    return_type 'Optional[String[1]]'
  end

  def holder(name)
    output = Puppet::Util::Execution.execute(%w[bunraku lock list --json], failonfail: true, combine: false)
    lock = JSON.parse(output).find { |entry| entry['name'] == name }
    first = lock && lock['holders'].first
    first && first['owner']
  end
end
