define sql($user = "u") { }
define web { }
Sql produces Db { user => $user }
Web consumes Db { }
application lamp { sql { "s": export => Db["d"] } web { "w": consume => Db["d"] } }
site { lamp { "a": nodes => { Node["db1"] => Sql["s"], Node["web1"] => Web["w"] } } }
