a:
  test.succeed_with_changes:
    - colour: red
