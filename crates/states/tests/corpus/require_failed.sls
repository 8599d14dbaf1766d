bad: test.fail_without_changes
child:
  test.nop:
    - require:
      - test: bad
grandchild:
  test.nop:
    - require:
      - test: child
other: test.nop
