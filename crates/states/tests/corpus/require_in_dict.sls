one:
  test.fail_without_changes:
    - require_in:
        test: two
two: test.nop
