one:
  test.fail_without_changes:
    - onfail_in:
      - test: two
two: test.nop
