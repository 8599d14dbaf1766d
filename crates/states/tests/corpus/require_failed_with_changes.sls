bad: test.fail_with_changes
child:
  test.nop:
    - require:
      - test: bad
