listener:
  test.nop:
    - listen:
      - changed
changed: test.succeed_with_changes
