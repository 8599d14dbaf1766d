needs:
  test.nop:
    - order: -3
    - require:
      - test: source
other: test.nop
source: test.nop
