application lamp($n = 1) {
  lamp::sql { $name: export => Sql["x"] }
  lamp::web { "w": consume => Sql["x"], require => Sql["x"] }
}
Lamp::Sql produces Sql { user => $user }
site { lamp { "a": n => 2, nodes => { Node["db"] => Lamp::Sql["a"] } } }
