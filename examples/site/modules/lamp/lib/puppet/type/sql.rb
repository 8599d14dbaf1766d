# The capability: what a consumer needs to know about a database.
Puppet::Type.newtype(:sql, is_capability: true) do
  newparam(:name, namevar: true)
  newparam(:user)
  newparam(:password)
  newparam(:host)
  newparam(:port)
  newparam(:database)
end
