after:
  test.nop:
    - require:
      - sls: nothing.*
