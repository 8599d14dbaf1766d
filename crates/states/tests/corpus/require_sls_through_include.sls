include:
  - inc.nested
after:
  test.nop:
    - require:
      - sls: inc.nested
