one: nosuch.thing
two: test.nop
needs:
  test.nop:
    - require:
      - nosuch: one
