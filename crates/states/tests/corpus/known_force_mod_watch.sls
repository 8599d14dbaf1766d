a:
  test.succeed_without_changes:
    - force_mod_watch: True
