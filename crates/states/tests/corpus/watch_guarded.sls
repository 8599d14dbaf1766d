a: test.succeed_with_changes
b:
  test.nop:
    - onlyif: 'false'
    - watch:
      - test: a
