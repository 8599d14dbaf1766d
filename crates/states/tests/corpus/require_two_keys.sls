one: test.nop
two:
  test.nop:
    - require:
      - test: one
        cmd: one
