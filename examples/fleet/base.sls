{{ facts.demo_root }}/etc:
  file.directory:
    - makedirs: True

{{ facts.demo_root }}/etc/motd:
  file.managed:
    - contents: |
        {{ facts.networking.hostname | default('this machine') }} is kept by Bunraku.
        Welcome, and please change nothing by hand.
    - require:
      - file: {{ facts.demo_root }}/etc
