one:
  test.fail_without_changes:
    - require_in:
      - two
two: test.nop
