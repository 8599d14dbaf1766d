changed:
  test.succeed_with_changes:
    - listen_in:
      - test: listener
listener: test.nop
