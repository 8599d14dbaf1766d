# frozen_string_literal: true

require 'json'

# The holders of all locks: { 'db-master' => ['db-1.example.com'] }.
Facter.add(:bunraku_locks) do
  confine { Facter::Core::Execution.which('bunraku') }

  setcode do
    output = Facter::Core::Execution.execute('bunraku lock facts', on_fail: '', timeout: 10)
    begin
      JSON.parse(output)['bunraku_locks']
    rescue JSON::ParserError
      nil
    end
  end
end
